package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/source"
	"github.com/stageset/stageset/reconciler/tenant"
)

// dependencyPause is when a dependency is looked at again if no watch says so earlier.
const dependencyPause = 30 * time.Second

// dependencies are the StageSets in dependsOn, read as the StageSet's own account: each exists and is Ready at its current
// generation.
func (p *Pipeline) dependencies(ctx context.Context, set *v1.StageSet) ([]*v1.StageSet, error) {
	if len(set.Spec.DependsOn) == 0 {
		return nil, nil
	}
	ctx, end := p.step(ctx, "dependencies")
	defer end()
	client, err := readerOf(ctx, p.Tenants, set, "spec.dependsOn")
	if err != nil {
		return nil, err
	}
	if err := p.cycle(ctx, client, set); err != nil {
		return nil, err
	}
	var (
		dependencies []*v1.StageSet
		problems     []error
	)
	for _, name := range DependenciesOf(set) {
		dependency, err := checkDependency(ctx, client, name)
		dependencies, problems = append(dependencies, dependency), append(problems, err)
	}
	return dependencies, failure.Join(problems...)
}

// readerOf reads as the StageSet's own account, which what, a field, is read as.
func readerOf(ctx context.Context, tenants Tenants, set *v1.StageSet, what string) (*tenant.Reader, error) {
	reader, err := tenants.Local(ctx, AccountOf(set))
	if err == nil {
		return reader, nil
	}
	if failed := failure.From(err); failed.Reason == v1.ReasonServiceAccountRequired {
		err = failure.NewStalled(failed.Reason, "%s is read as spec.serviceAccountName: set it: %w", what, failed.Err)
	}
	return nil, err
}

// agree checks that dependencies run the revisions of shared sources that are about to be applied here. Its text differs when
// one of them does: another object, or another generation.
func agree(dependencies []*v1.StageSet, pinned Pinned) (string, error) {
	var (
		versions strings.Builder
		problems []error
	)
	for _, dependency := range dependencies {
		fmt.Fprintf(&versions, "%s/%s %s %d\n", dependency.Namespace, dependency.Name, dependency.UID, dependency.Generation)
		if why := behind(dependency, pinned); why != "" {
			problems = append(problems, dependencyNotReady(types.NamespacedName{Namespace: dependency.Namespace, Name: dependency.Name}, why))
		}
	}
	return versions.String(), failure.Join(problems...)
}

func dependencyNotReady(name types.NamespacedName, why string) error {
	return failure.NewWaiting(v1.ReasonDependencyNotReady, dependencyPause, "StageSet %s in spec.dependsOn %s", name, why)
}

func checkDependency(ctx context.Context, client *tenant.Reader, name types.NamespacedName) (*v1.StageSet, error) {
	dependency, err := getDependency(ctx, client, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, dependencyNotReady(name, "does not exist: create it, or remove it from spec.dependsOn")
	case apierrors.IsForbidden(err):
		return nil, failure.NewStalled(v1.ReasonAccessDenied, "%s may not get StageSet %s in spec.dependsOn: "+
			"grant get on stagesets.stages.metio.wtf/%s in namespace %s to it", client.Identity(), name, name.Name, name.Namespace)
	case err != nil:
		return nil, err
	}
	if why := notReady(dependency); why != "" {
		return nil, dependencyNotReady(name, why)
	}
	return dependency, nil
}

// getDependency reads a StageSet as the tenant. Its error is the API server's when there is none or it may not be read, and
// a *failure.Error otherwise.
func getDependency(ctx context.Context, client *tenant.Reader, name types.NamespacedName) (*v1.StageSet, error) {
	obj, err := client.Get(ctx, v1.GroupVersion.WithKind("StageSet"), name.Namespace, name.Name)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil, err
	case err != nil:
		return nil, failure.NewTransient(v1.ReasonTargetUnreachable, "read StageSet %s in spec.dependsOn: %w", name, err)
	}
	var dependency v1.StageSet
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &dependency); err != nil {
		return nil, failure.NewStalled(v1.ReasonDependencyNotReady, "read StageSet %s in spec.dependsOn: %w", name, err)
	}
	return &dependency, nil
}

// notReady says why a dependency is not ready; empty if it is.
func notReady(dependency *v1.StageSet) string {
	ready := meta.FindStatusCondition(dependency.Status.Conditions, v1.ConditionReady)
	switch {
	case !dependency.DeletionTimestamp.IsZero():
		return "is being deleted"
	case dependency.Spec.Suspend:
		return "is suspended"
	case ready == nil, ready.ObservedGeneration != dependency.Generation,
		dependency.Status.ObservedGeneration != dependency.Generation:
		return "has not been reconciled at its current generation"
	case ready.Status != metav1.ConditionTrue:
		return fmt.Sprintf("is not Ready (%s)", ready.Reason)
	}
	return ""
}

// behind says which source a dependency has not applied the pinned revision of; empty if it is none.
func behind(dependency *v1.StageSet, pinned Pinned) string {
	for _, stage := range pinned.Stages {
		shared := stage.Pin.Namespace + "/" + stage.Pin.Name
		applied, known := dependency.Status.LastAppliedRevisions[shared]
		if known && applied != stage.Pin.Revision && !usesNamesake(dependency, stage.Pin) {
			return fmt.Sprintf("has applied %s of source %s, not yet %s", applied, shared, stage.Pin.Revision)
		}
	}
	return ""
}

// usesNamesake is true when the StageSet uses a source of the pin's namespace and name that is of another kind: its status
// does not say which of them a revision is of, and their revisions never become equal. What a producer is called says nothing:
// the name in the status is that of its ExternalArtifact.
func usesNamesake(set *v1.StageSet, pin source.Pin) bool {
	return slices.ContainsFunc(set.Spec.Stages, func(stage v1.Stage) bool {
		ref := stage.SourceRef.In(set.Namespace)
		return !ref.IsProducer() && ref.Namespace == pin.Namespace && ref.Name == pin.Name && ref.Kind != pin.Kind
	})
}

package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

const (
	// page is how many StageSets are read at once. Each may have more than a megabyte.
	page = 50
	// maxExamples and maxMessage are what the schema of the status allows.
	maxExamples = 20
	maxMessage  = 2048
)

// findings are what all policies say about everything that is stored.
type findings struct {
	observedAt metav1.Time
	evaluated  int64
	policies   map[string]*finding
}

// finding is what one policy says.
type finding struct {
	violations int64
	byAction   map[v1alpha1.ValidationAction]int64
	examples   []v1alpha1.AuditExample
	// failed is the first thing that could not be evaluated; paramRef tells that it was the parameters.
	failed   string
	paramRef bool
}

func (f *findings) of(policy string) *finding {
	if f.policies[policy] == nil {
		f.policies[policy] = &finding{byAction: map[v1alpha1.ValidationAction]int64{}}
	}
	return f.policies[policy]
}

// evaluate asks set about every stored StageSet, as the reconciler does: as a CREATE by nobody, with the defaults filled in.
func (a *Auditor) evaluate(
	ctx context.Context, set *policies.Set, namespaces map[string]*corev1.Namespace,
) (*findings, error) {
	found := &findings{observedAt: metav1.NewTime(a.Clock.Now()), policies: map[string]*finding{}}
	within := a.Namespaces
	if len(within) == 0 {
		within = []string{metav1.NamespaceAll}
	}
	for _, namespace := range within {
		err := a.eachStageSet(ctx, namespace, func(stored *unstructured.Unstructured) {
			found.add(stored, judge(ctx, set, stored, namespaces))
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// eachStageSet visits the stored StageSets of a namespace, or of all.
func (a *Auditor) eachStageSet(ctx context.Context, namespace string, visit func(*unstructured.Unstructured)) error {
	for next, more := "", true; more; more = next != "" {
		var items []unstructured.Unstructured
		var err error
		if items, next, err = a.stageSets(ctx, namespace, next); err != nil {
			return fmt.Errorf("listing StageSets: %w", err)
		}
		for i := range items {
			visit(&items[i])
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// stageSets are some of the stored StageSets, and where those after them begin; empty if there are none.
func (a *Auditor) stageSets(ctx context.Context, namespace, from string) ([]unstructured.Unstructured, string, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1.GroupVersion.WithKind("StageSetList"))
	err := a.Live.List(ctx, list, client.InNamespace(namespace), client.Limit(page), client.Continue(from))
	if status := apierrors.APIStatus(nil); apierrors.IsResourceExpired(err) && errors.As(err, &status) {
		// Evaluating what came before took minutes. What is there now may be read on from the same place, which is as good.
		if again := status.Status().Continue; again != "" {
			return nil, again, nil
		}
	}
	return list.Items, list.GetContinue(), err
}

// judge is what the policies say about a stored StageSet.
func judge(
	ctx context.Context, set *policies.Set, object *unstructured.Unstructured, namespaces map[string]*corev1.Namespace,
) policies.Decision {
	in := policies.Input{Object: object, Namespace: namespaces[object.GetNamespace()]}
	// What cannot be defaulted is evaluated as it is.
	defaulted, err := set.Default(ctx, in)
	in.Object = defaulted
	decision := set.Validate(ctx, in)
	var failed policies.DefaultError
	if errors.As(err, &failed) {
		decision.Failed = append(decision.Failed, failed...)
	}
	return decision
}

// add adds what the policies say about one StageSet. A violation that leads to two actions is one violation.
func (f *findings) add(object *unstructured.Unstructured, decision policies.Decision) {
	f.evaluated++
	seen := map[policies.Violation]bool{}
	for _, list := range []struct {
		action     v1alpha1.ValidationAction
		violations []policies.Violation
	}{
		{v1alpha1.ValidationActionDeny, decision.Denied},
		{v1alpha1.ValidationActionWarn, decision.Warned},
		{v1alpha1.ValidationActionAudit, decision.Audited},
	} {
		for _, violation := range list.violations {
			of := f.of(violation.Policy)
			of.byAction[list.action]++
			if !seen[violation] {
				seen[violation] = true
				of.violations++
				of.example(object, violation)
			}
		}
	}
	for _, failed := range decision.Failed {
		of := f.of(failed.Policy)
		if of.failed == "" {
			of.failed = fmt.Sprintf("StageSet %s/%s: %s", object.GetNamespace(), object.GetName(), failed)
			of.paramRef = failed.Rule == "paramRef"
		}
	}
}

// example keeps the first violation of a StageSet.
func (f *finding) example(object *unstructured.Unstructured, violation policies.Violation) {
	same := func(e v1alpha1.AuditExample) bool {
		return e.Namespace == object.GetNamespace() && e.Name == object.GetName()
	}
	if len(f.examples) == maxExamples || slices.ContainsFunc(f.examples, same) {
		return
	}
	f.examples = append(f.examples, v1alpha1.AuditExample{
		Namespace: object.GetNamespace(), Name: object.GetName(), Message: cut(violation.String(), maxMessage),
	})
}

// status is what a policy says about all StageSets.
func (f *findings) status(policy string) *v1alpha1.AuditStatus {
	status := &v1alpha1.AuditStatus{ObservedAt: f.observedAt, Evaluated: f.evaluated}
	if of := f.policies[policy]; of != nil {
		status.Violations, status.ByAction, status.Examples = of.violations, of.byAction, of.examples
	}
	return status
}

// cut is text of at most length characters.
func cut(text string, length int) string {
	runes := []rune(text)
	if len(runes) <= length {
		return text
	}
	return string(runes[:length-1]) + "…"
}

// Package rules asks the policies about a release at reconcile time: about the stored StageSet, each resolved source, and
// every rendered object. It turns their decisions into one failure and a list of warnings. It never decides anything by
// itself, and never talks to a cluster.
package rules

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/source"
)

// releaseTime bounds how long policies may look at the sources and objects of one release: what they have not decided by then,
// their failurePolicy decides.
const releaseTime = time.Minute

// Review is what the policies say about one release, from the stored StageSet to its last object. It is for one pass and
// not safe for concurrent use.
type Review struct {
	set       *policies.Set
	verdicts  *verdicts
	object    *unstructured.Unstructured
	namespace *corev1.Namespace
	denied    lines
	warned    lines
	// left is what is left of releaseTime.
	left time.Duration
	// about is the hash of what is the same for all stages; nil until it is needed.
	about []byte
	// params are those that have been logged.
	params []policies.Param
}

// Admit asks about a stored StageSet with what the policies fill in as a CREATE by nobody: a webhook that was down, bypassed or
// younger than the object changes nothing about what may run. It returns the defaulted StageSet; the error is a *failure.Error
// that lists every violation in the webhook's words, and the Review says what else there is to warn of; it is nil if there is
// none.
func (p *Policies) Admit(ctx context.Context, stored *v1.StageSet, namespace *corev1.Namespace) (
	*v1.StageSet, *Review, error,
) {
	defaulted, review, err := p.Default(ctx, stored, namespace)
	if err != nil {
		return nil, nil, err
	}
	return defaulted, review, review.StageSet(ctx)
}

// Default applies the defaulting policies to a copy of a stored StageSet. It returns the defaulted one, and a Review of it, which
// nobody has asked yet. The error is a *failure.Error: a policy cannot be evaluated, or makes what is no StageSet.
func (p *Policies) Default(ctx context.Context, stored *v1.StageSet, namespace *corev1.Namespace) (
	*v1.StageSet, *Review, error,
) {
	verdicts := p.now()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(stored)
	if err != nil {
		return nil, nil, fmt.Errorf("convert the StageSet: %w", err)
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(v1.GroupVersion.WithKind("StageSet"))
	object, err = verdicts.set.Default(ctx, policies.Input{Object: object, Namespace: namespace})
	if err != nil {
		return nil, nil, failure.NewStalled(v1.ReasonPolicyViolation, "defaulting policies cannot be evaluated: %w", err)
	}
	var defaulted v1.StageSet
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &defaulted); err != nil {
		return nil, nil, failure.NewStalled(v1.ReasonInvalidSpec, "the defaulted StageSet is not valid: %w", err)
	}
	return &defaulted, &Review{
		set: verdicts.set, verdicts: verdicts, object: object, namespace: namespace, left: releaseTime,
	}, nil
}

// StageSet asks about the StageSet itself. The error is Err's.
func (r *Review) StageSet(ctx context.Context) error {
	r.add(ctx, "", r.set.Validate(ctx, policies.Input{Object: r.object, Namespace: r.namespace}))
	return r.Err()
}

// Source asks about the resolved source of a stage.
func (r *Review) Source(ctx context.Context, stage string, pin source.Pin) {
	if !r.set.HasTarget(v1alpha1.TargetSource) {
		return
	}
	ctx, done := r.timed(ctx)
	defer done()
	r.add(ctx, fmt.Sprintf("stage %s: %s: ", stage, pin), r.set.ValidateSource(ctx, r.input(stage, pin)))
}

// timed is ctx within the time that is left of the release's; done says that it is no longer used.
func (r *Review) timed(ctx context.Context) (within context.Context, done func()) {
	var clock clock.RealClock // that of contexts
	end := clock.Now().Add(r.left)
	within, cancel := context.WithDeadline(ctx, end)
	return within, func() {
		cancel()
		r.left = end.Sub(clock.Now())
	}
}

func (r *Review) input(stage string, pin source.Pin) policies.SourceInput {
	return policies.SourceInput{
		StageSet: r.object, Stage: stage, Namespace: r.namespace,
		Source: v1alpha1.SourceFacts{
			APIVersion: source.APIVersion, Kind: string(pin.Kind), Namespace: pin.Namespace, Name: pin.Name,
			URL: pin.Origin, Revision: pin.Revision, Digest: pin.Digest, Verified: pin.Verified,
		},
	}
}

// describe is an object as messages name it: "Deployment.apps payments/web".
func describe(object *unstructured.Unstructured) string {
	gvk := object.GroupVersionKind()
	text := gvk.GroupKind().String() + " "
	if namespace := object.GetNamespace(); namespace != "" {
		text += namespace + "/"
	}
	return text + object.GetName()
}

// add adds what the policies say about something, and returns what they warn of.
func (r *Review) add(ctx context.Context, about string, decision policies.Decision) []string {
	for _, violation := range decision.Denied {
		r.denied.add(about + violation.String())
	}
	var warned []string
	for _, violation := range decision.Warned {
		warned = append(warned, about+violation.String())
	}
	r.warn(warned)
	r.logParams(ctx, decision)
	return warned
}

func (r *Review) warn(warned []string) {
	for _, line := range warned {
		r.warned.add(line)
	}
}

// logParams says which objects, in which versions, policies had as parameters that denied something: what they said then can
// be looked up. Each is said once a pass.
func (r *Review) logParams(ctx context.Context, decision policies.Decision) {
	for _, param := range decision.Params {
		denied := slices.ContainsFunc(decision.Denied, func(v policies.Violation) bool { return v.Policy == param.Policy })
		if denied && !slices.Contains(r.params, param) {
			r.params = append(r.params, param)
			logr.FromContextOrDiscard(ctx).Info("denied by a policy with parameters", "policy", param.Policy, "params", param.String())
		}
	}
}

// Identity changes when the policies do, their parameters, or what they look at besides the spec: the Namespace, and the
// labels of the StageSet.
func (r *Review) Identity() string {
	namespace := ""
	if r.namespace != nil {
		namespace = r.namespace.ResourceVersion
	}
	return fmt.Sprintf("%p/%s/%v", r.set, namespace, r.object.GetLabels())
}

// Err is a *failure.Error that lists all violations so far; nil if there are none.
func (r *Review) Err() error {
	if len(r.denied.kept) == 0 {
		return nil
	}
	return failure.NewStalled(v1.ReasonPolicyViolation, "%s", r.denied)
}

// Warnings is what the policies warn of, as part of a message; empty if they do not, or r is nil.
func (r *Review) Warnings() string {
	if r == nil {
		return ""
	}
	return r.warned.String()
}

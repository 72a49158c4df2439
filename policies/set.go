package policies

import (
	"context"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies/internal/celenv"
)

// Authorizer answers the checks of the variable authorizer: the API server's UnconditionalAuthorizer.
type Authorizer = celenv.Authorizer

// Options are what a Set knows besides its policies.
type Options struct {
	// PlatformNamespaces are the namespaces that are not tenants' (the variable tenant is false there); "*" is all.
	PlatformNamespaces []string
	// Params is the value of the variable params, by the name of the policy; for all others it is null.
	Params map[string]map[string]any
	// Timeout bounds one Default or Validate; zero is 2.5 s, half the webhook's timeout.
	Timeout time.Duration
}

// Set is a compiled set of policies. It is immutable and safe for concurrent use.
type Set struct{}

// Input is what a Set is asked about. Nothing in it is changed.
type Input struct {
	// Object is the StageSet as it is to be; nil for DELETE. OldObject is the StageSet as it was; nil for CREATE.
	Object, OldObject *unstructured.Unstructured
	// Namespace is the StageSet's Namespace. When nil, whatever asks for it cannot be evaluated.
	Namespace *corev1.Namespace
	// Request is the admission request. When nil, the StageSet is evaluated as stored: a CREATE by nobody, without the rules
	// that ask who requests it.
	Request *admissionv1.AdmissionRequest
	// Authorizer answers the checks of the variable authorizer; when nil they cannot be evaluated.
	Authorizer Authorizer
}

// Compile compiles policies. The Set is never nil: a policy that does not compile is decided by its failurePolicy, and stops
// no other. The error then has a Problem for everything that is wrong with it.
func Compile(_ context.Context, _ []v1alpha1.StageSetPolicy, _ Options) (*Set, error) {
	return &Set{}, nil
}

// Default is a copy of in.Object in which the mutations of all policies filled in what was unset, and the annotation
// stages.metio.wtf/defaulted-by records what they set. The copy is usable also when the error is not nil: the error is of
// the policies that could not be evaluated, all others were.
func (s *Set) Default(_ context.Context, in Input) (*unstructured.Unstructured, error) {
	return in.Object.DeepCopy(), nil
}

// Validate is everything that the policies say about in, which Default has been applied to.
func (s *Set) Validate(_ context.Context, _ Input) Decision {
	return Decision{}
}

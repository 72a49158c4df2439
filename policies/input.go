package policies

import (
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies/internal/celenv"
)

// Authorizer answers the checks of the variable authorizer: the API server's UnconditionalAuthorizer.
type Authorizer = celenv.Authorizer

// Input is what a Set is asked about. Nothing in it is changed.
type Input struct {
	// Object is the StageSet as it is to be; nil for DELETE. OldObject is the StageSet as it was; nil for CREATE.
	Object, OldObject *unstructured.Unstructured
	// Namespace is the StageSet's Namespace. When nil, whatever asks for it cannot be evaluated.
	Namespace *corev1.Namespace
	// Request is the admission request. When nil, the StageSet is evaluated as stored: a CREATE by nobody, without the rules
	// that ask who requests it, or how.
	Request *admissionv1.AdmissionRequest
	// Authorizer answers the checks of the variable authorizer; when nil they cannot be evaluated.
	Authorizer Authorizer
}

// question is what a Set is asked, with what is derived from it once.
type question struct {
	// Input is what expressions about StageSets see. For the other targets it has only an object and a namespace.
	Input
	target    v1alpha1.Target
	request   *admissionv1.AdmissionRequest
	namespace string
	// kind is what resourceRules select by, and labelled are the objects whose labels objectSelector selects by: neither is for
	// the target StageSet, where it depends on which of the objects is evaluated.
	kind     schema.GroupVersionKind
	labelled []*unstructured.Unstructured
	// release are the variables that only the targets Source and Manifest have.
	release map[string]any
	// lookup finds the parameters of policies; nil if there is nowhere to look.
	lookup ParamLookup
	// stored tells that there is no request.
	stored bool
	// update tells that this is a request that changes an object.
	update bool
	// specUnchanged tells that this is an update that leaves the spec as it is.
	specUnchanged bool
}

func newQuestion(in Input) question {
	q := question{
		Input: in, target: v1alpha1.TargetStageSet, namespace: in.namespaceName(),
		request: in.Request, stored: in.Request == nil,
	}
	if q.stored {
		name := ""
		if in.Object != nil {
			name = in.Object.GetName()
		}
		q.request = NewRequest(admissionv1.Create, q.namespace, name)
	}
	if q.request.Operation == admissionv1.Update && in.Object != nil && in.OldObject != nil {
		q.update = true
		q.specUnchanged = equality.Semantic.DeepEqual(in.Object.Object["spec"], in.OldObject.Object["spec"])
	}
	return q
}

// namespaceName is the name of the StageSet's namespace: the request's, because the API server vouches for that.
func (in Input) namespaceName() string {
	switch {
	case in.Request != nil && in.Request.Namespace != "":
		return in.Request.Namespace
	case in.Object != nil && in.Object.GetNamespace() != "":
		return in.Object.GetNamespace()
	case in.OldObject != nil && in.OldObject.GetNamespace() != "":
		return in.OldObject.GetNamespace()
	case in.Namespace != nil:
		return in.Namespace.Name
	default:
		return ""
	}
}

// NewRequest is a request by nobody for a StageSet, as the API server would send it.
func NewRequest(operation admissionv1.Operation, namespace, name string) *admissionv1.AdmissionRequest {
	version := v1.GroupVersion
	kind := metav1.GroupVersionKind{Group: version.Group, Version: version.Version, Kind: "StageSet"}
	resource := metav1.GroupVersionResource{Group: version.Group, Version: version.Version, Resource: "stagesets"}
	return &admissionv1.AdmissionRequest{
		Kind:            kind,
		Resource:        resource,
		RequestKind:     &kind,
		RequestResource: &resource,
		Name:            name,
		Namespace:       namespace,
		Operation:       operation,
		DryRun:          ptr.To(false),
	}
}

func (q question) operation() v1alpha1.Operation { return v1alpha1.Operation(q.request.Operation) }

// at is q about other versions of the StageSet, whose labels decide then.
func (q question) at(object, old *unstructured.Unstructured) question {
	q.labelled = []*unstructured.Unstructured{object, old}
	return q
}

// fields are the fields of an object as expressions see them; nil, which is null, if there is no object.
func fields(object *unstructured.Unstructured) map[string]any {
	if object == nil {
		return nil
	}
	return object.Object
}

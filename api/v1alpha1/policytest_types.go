package v1alpha1

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Expectation is what a test expects of its policy.
// +kubebuilder:validation:Enum=allow;deny;warn
type Expectation string

const (
	// ExpectAllow expects no violation.
	ExpectAllow Expectation = "allow"
	// ExpectDeny expects at least one violation, whatever validationActions say: a policy can be tested before it denies.
	ExpectDeny Expectation = "deny"
	// ExpectWarn expects violations, and that all of them only warn.
	ExpectWarn Expectation = "warn"
)

// PolicyTest is an example with the expected outcome. The policy's mutations are applied first, then its validations are
// evaluated, as in a request.
type PolicyTest struct {
	// name identifies the test within its policy.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// object is the StageSet as it is written. apiVersion, kind, and metadata.namespace may be left out. It is left out as a
	// whole for DELETE.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Object *runtime.RawExtension `json:"object,omitempty"`

	// oldObject is the StageSet as it was, for UPDATE and DELETE.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	OldObject *runtime.RawExtension `json:"oldObject,omitempty"`

	// operation of the request. When unset, it is CREATE, or UPDATE if there is an oldObject.
	// +optional
	Operation Operation `json:"operation,omitempty"`

	// namespace is the StageSet's Namespace. When unset, it is one with the StageSet's namespace as its name, or "tenant".
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Namespace *runtime.RawExtension `json:"namespace,omitempty"`

	// tenant is the value of the variable tenant. When unset, it is true.
	// +optional
	Tenant *bool `json:"tenant,omitempty"`

	// user makes the request. When unset, it is a user without a group.
	// +optional
	User *authenticationv1.UserInfo `json:"user,omitempty"`

	// params is the value of the variable params. When unset, it is null.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Params *runtime.RawExtension `json:"params,omitempty"`

	// expect is the expected outcome.
	// +required
	Expect Expectation `json:"expect"`

	// message must be part of the text of at least one violation.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// defaulted is the object as the mutations must leave it, without the annotation that records them.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Defaulted *runtime.RawExtension `json:"defaulted,omitempty"`
}

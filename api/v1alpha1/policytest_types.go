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

	// object is the StageSet as it is written: apiVersion, kind, and metadata.namespace may be left out, and all of it for
	// DELETE. For the target Manifest it is the object as it is applied.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Object *runtime.RawExtension `json:"object,omitempty"`

	// objects are several objects, for the target Manifest. Each is evaluated; what is expected is expected of all together.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Type=object
	// +kubebuilder:validation:items:XPreserveUnknownFields
	Objects []runtime.RawExtension `json:"objects,omitempty"`

	// stageSet is the StageSet that the source or the objects belong to, for the targets Source and Manifest. When unset, it is
	// one with a single stage.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	StageSet *runtime.RawExtension `json:"stageSet,omitempty"`

	// stage names the stage of stageSet that the source or the objects belong to. When unset, it is the first.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Stage string `json:"stage,omitempty"`

	// source is the source of the stage, for the targets Source and Manifest.
	// +optional
	Source *SourceFacts `json:"source,omitempty"`

	// target is what the objects are applied to, for the target Manifest. When unset, it is this cluster.
	// +optional
	Target *TargetFacts `json:"target,omitempty"`

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

	// permissions are what the user may do, as the variable authorizer says it. When unset, the user may do nothing.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Permissions []Permission `json:"permissions,omitempty"`

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

// SourceFacts is a source as expressions see it.
type SourceFacts struct {
	// apiVersion such as source.toolkit.fluxcd.io/v1.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`
	// kind such as GitRepository.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// namespace of the source. When unset in a test, it is that of the StageSet.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// name of the source.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// url is where the source comes from; empty if its kind does not say.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`
	// revision of the artifact, such as main@sha1:….
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Revision string `json:"revision,omitempty"`
	// digest of the artifact, such as sha256:….
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Digest string `json:"digest,omitempty"`
	// verified tells that the source's condition SourceVerified is True.
	// +optional
	Verified bool `json:"verified,omitempty"`
}

// TargetFacts is what a stage is applied to, as expressions see it.
type TargetFacts struct {
	// remote tells that it is another cluster.
	// +optional
	Remote bool `json:"remote,omitempty"`
	// server is the URL of the other cluster's API server; empty for this cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Server string `json:"server,omitempty"`
	// serviceAccountName is the account that applies.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// Permission is something that a user may do. A part that is unset is any.
type Permission struct {
	// verb such as impersonate.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Verb string `json:"verb"`
	// apiGroup such as apps.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	APIGroup string `json:"apiGroup,omitempty"`
	// resource such as serviceaccounts, or serviceaccounts/token.
	// +optional
	// +kubebuilder:validation:MaxLength=127
	Resource string `json:"resource,omitempty"`
	// namespace in which the user may.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// name of the object with which the user may.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

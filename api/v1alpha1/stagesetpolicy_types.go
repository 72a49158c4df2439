package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StageSetPolicy says, in CEL, which StageSets are accepted, and what is filled in where they say nothing. It is evaluated
// when a StageSet is written and again, by the reconciler, on what is stored.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ssp,categories=gitops
type StageSetPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the policy.
	// +required
	Spec StageSetPolicySpec `json:"spec"`
}

// StageSetPolicyList is a list of StageSetPolicies.
// +kubebuilder:object:root=true
type StageSetPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StageSetPolicy `json:"items"`
}

// Target is what a policy is evaluated on.
// +kubebuilder:validation:Enum=StageSet
type Target string

// TargetStageSet evaluates a policy on StageSets, when they are written and when they are reconciled. It is the default.
const TargetStageSet Target = "StageSet"

// FailurePolicy says what an expression that cannot be compiled or evaluated means.
// +kubebuilder:validation:Enum=Fail;Ignore
type FailurePolicy string

const (
	// FailurePolicyFail counts an evaluation error as a violation. It is the default.
	FailurePolicyFail FailurePolicy = "Fail"
	// FailurePolicyIgnore lets pass what could not be evaluated.
	FailurePolicyIgnore FailurePolicy = "Ignore"
)

// ValidationAction is what a violation leads to.
// +kubebuilder:validation:Enum=Deny;Warn;Audit
type ValidationAction string

const (
	// ValidationActionDeny refuses the StageSet. It is the default.
	ValidationActionDeny ValidationAction = "Deny"
	// ValidationActionWarn accepts the StageSet with a warning.
	ValidationActionWarn ValidationAction = "Warn"
	// ValidationActionAudit accepts the StageSet and records the violation.
	ValidationActionAudit ValidationAction = "Audit"
)

// StageSetPolicySpec is the policy.
type StageSetPolicySpec struct {
	// target is what the policy is evaluated on.
	// +optional
	// +kubebuilder:default=StageSet
	Target Target `json:"target,omitempty"`

	// matchConstraints narrows what the policy is evaluated on, without CEL. When unset, it is every creation and update of
	// a StageSet.
	// +optional
	MatchConstraints *MatchConstraints `json:"matchConstraints,omitempty"`

	// matchConditions must all be true for the policy to be evaluated. They see every variable but variables.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	MatchConditions []MatchCondition `json:"matchConditions,omitempty"`

	// variables are evaluated when they are first read, at most once, and read as variables.<name>. A variable sees those
	// before it.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Variables []Variable `json:"variables,omitempty"`

	// mutations fill in what the StageSet leaves unset. What is set is never changed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Mutations []Mutation `json:"mutations,omitempty"`

	// validations must all hold. All that do not are reported at once.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Validations []Validation `json:"validations,omitempty"`

	// validationActions is what a violation leads to. Deny and Warn exclude each other. When unset, it is Deny.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	ValidationActions []ValidationAction `json:"validationActions,omitempty"`

	// failurePolicy says what an expression that cannot be compiled or evaluated means.
	// +optional
	// +kubebuilder:default=Fail
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`

	// tests are examples with the expected outcome.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Tests []PolicyTest `json:"tests,omitempty"`
}

// Operation is a kind of request.
// +kubebuilder:validation:Enum=CREATE;UPDATE;DELETE
type Operation string

const (
	// OperationCreate is the creation of a StageSet; the reconciler evaluates what is stored as one.
	OperationCreate Operation = "CREATE"
	// OperationUpdate is a change of spec, labels or annotations.
	OperationUpdate Operation = "UPDATE"
	// OperationDelete is a deletion; object is null then.
	OperationDelete Operation = "DELETE"
)

// MatchConstraints narrows what a policy is evaluated on. Every part that is set must match.
type MatchConstraints struct {
	// operations are the requests that the policy is evaluated on. When unset, they are CREATE and UPDATE.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	Operations []Operation `json:"operations,omitempty"`

	// namespaceSelector selects by the labels of the StageSet's namespace.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// objectSelector selects by the labels of the StageSet: as it is to be, or as it was.
	// +optional
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`

	// excludeNamespaces lists the namespaces that the policy does not reach, by name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	ExcludeNamespaces []string `json:"excludeNamespaces,omitempty"`
}

// MatchCondition decides whether a policy is evaluated.
type MatchCondition struct {
	// name identifies the condition within its policy.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// expression is CEL and evaluates to a bool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=10240
	Expression string `json:"expression"`
}

// Variable is a named expression.
type Variable struct {
	// name is a CEL identifier; other expressions read variables.<name>.
	// +required
	// +kubebuilder:validation:Pattern="^[a-zA-Z_][a-zA-Z0-9_]*$"
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// expression is CEL and may evaluate to anything.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=10240
	Expression string `json:"expression"`
}

// PatchType is how a mutation says what it fills in.
// +kubebuilder:validation:Enum=ApplyConfiguration;JSONPatch
type PatchType string

const (
	// PatchTypeApplyConfiguration is an object with the fields to fill in.
	PatchTypeApplyConfiguration PatchType = "ApplyConfiguration"
	// PatchTypeJSONPatch is a list of JSON Patch (RFC 6902) operations.
	PatchTypeJSONPatch PatchType = "JSONPatch"
)

// Mutation fills in fields. Exactly the member that patchType names is set.
type Mutation struct {
	// patchType says which of the other members is set.
	// +required
	PatchType PatchType `json:"patchType"`
	// applyConfiguration is an object that is merged below the StageSet.
	// +optional
	ApplyConfiguration *MutationExpression `json:"applyConfiguration,omitempty"`
	// jsonPatch is applied to the StageSet.
	// +optional
	JSONPatch *MutationExpression `json:"jsonPatch,omitempty"`
}

// MutationExpression is the expression of a mutation.
type MutationExpression struct {
	// expression is CEL and evaluates to an Object (ApplyConfiguration) or to a list of JSONPatch, as in
	// MutatingAdmissionPolicy.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=10240
	Expression string `json:"expression"`
}

// Validation is a rule.
type Validation struct {
	// name identifies the rule within its policy; every violation starts with <policy>/<name>.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// expression is CEL and evaluates to a bool: false is a violation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=10240
	Expression string `json:"expression"`
	// message says what is wrong and what to do about it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
	// messageExpression is CEL and evaluates to a string that replaces message. Newlines become "; ", and what is longer than
	// 5 KiB is cut. When it cannot be evaluated, or evaluates to an empty string, message is used.
	// +optional
	// +kubebuilder:validation:MaxLength=10240
	MessageExpression string `json:"messageExpression,omitempty"`
	// fieldPath is the field that the rule speaks of, such as spec.serviceAccountName. When unset, it is spec.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	FieldPath string `json:"fieldPath,omitempty"`
}

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StageSetPolicy says, in CEL, which StageSets are accepted, what is filled in where they say nothing, and which sources and
// objects they may apply. Those about StageSets are evaluated when a StageSet is written and again, by the reconciler, on
// what is stored.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ssp,categories=gitops
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Target,type=string,JSONPath=`.spec.target`
// +kubebuilder:printcolumn:name=Actions,type=string,JSONPath=`.spec.validationActions`
// +kubebuilder:printcolumn:name=Enforced On,type=string,JSONPath=`.spec.enforceOn`,priority=1
// +kubebuilder:printcolumn:name=On Failure,type=string,JSONPath=`.spec.failurePolicy`,priority=1
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type StageSetPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the policy.
	// +required
	Spec StageSetPolicySpec `json:"spec"`

	// status is what each installation makes of the policy.
	// +optional
	Status StageSetPolicyStatus `json:"status,omitzero"`
}

// StageSetPolicyList is a list of StageSetPolicies.
// +kubebuilder:object:root=true
type StageSetPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StageSetPolicy `json:"items"`
}

// Target is what a policy is evaluated on.
// +kubebuilder:validation:Enum=StageSet;Source;Manifest
type Target string

const (
	// TargetStageSet evaluates a policy on StageSets, when they are written and when they are reconciled. It is the default.
	TargetStageSet Target = "StageSet"
	// TargetSource evaluates a policy on the source of each stage, once it is resolved.
	TargetSource Target = "Source"
	// TargetManifest evaluates a policy on each object that a StageSet renders, before the first of them is written.
	TargetManifest Target = "Manifest"
)

// FailurePolicy says what an expression that cannot be compiled or evaluated means.
// +kubebuilder:validation:Enum=Fail;Ignore
type FailurePolicy string

const (
	// FailurePolicyFail counts an evaluation error as a violation. It is the default.
	FailurePolicyFail FailurePolicy = "Fail"
	// FailurePolicyIgnore lets pass what could not be evaluated.
	FailurePolicyIgnore FailurePolicy = "Ignore"
)

// EnforceOn says whether what was wrong before is refused.
// +kubebuilder:validation:Enum=All;Changes
type EnforceOn string

const (
	// EnforceOnAll refuses every violation. It is the default.
	EnforceOnAll EnforceOn = "All"
	// EnforceOnChanges refuses what is created or changed: an update in which a validation fails that the old object failed as
	// well only warns, if what is at the validation's fieldPath is equal in both. The reconciler only warns then.
	EnforceOnChanges EnforceOn = "Changes"
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
	// a StageSet, every source, or every object.
	// +optional
	MatchConstraints *MatchConstraints `json:"matchConstraints,omitempty"`

	// matchConditions must all be true for the policy to be evaluated. They see every variable but variables.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	MatchConditions []MatchCondition `json:"matchConditions,omitempty"`

	// paramKind is the kind of the objects that the expressions read as params. Only kinds that the installation allows can be
	// parameters, and never Secrets. It is set if and only if paramRef is.
	// +optional
	ParamKind *ParamKind `json:"paramKind,omitempty"`

	// paramRef selects the objects that the expressions read as params. Where it selects several, the policy is evaluated with
	// each of them.
	// +optional
	ParamRef *ParamRef `json:"paramRef,omitempty"`

	// variables are evaluated when they are first read, at most once, and read as variables.<name>. A variable sees those
	// before it.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Variables []Variable `json:"variables,omitempty"`

	// mutations fill in what the StageSet leaves unset. What is set is only changed by a mutation with override. They are for
	// the target StageSet alone.
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

	// auditAnnotations are added to the audit event of a request that the policy is evaluated on. They are for the target
	// StageSet alone: nothing else is decided in a request.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=20
	AuditAnnotations []AuditAnnotation `json:"auditAnnotations,omitempty"`

	// validationActions is what a violation leads to. Deny and Warn exclude each other. When unset, it is Deny.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	ValidationActions []ValidationAction `json:"validationActions,omitempty"`

	// enforceOn says whether what was wrong before is refused. It is for the target StageSet alone.
	// +optional
	// +kubebuilder:default=All
	EnforceOn EnforceOn `json:"enforceOn,omitempty"`

	// failurePolicy says what an expression that cannot be compiled or evaluated means.
	// +optional
	// +kubebuilder:default=Fail
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`

	// tests are examples with the expected outcome. A policy is refused if one of them has another.
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
	// operations are the requests that the policy is evaluated on. When unset, they are CREATE and UPDATE. They are for the
	// target StageSet alone.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	Operations []Operation `json:"operations,omitempty"`

	// namespaceSelector selects by the labels of the StageSet's namespace.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// resourceRules selects sources, or objects, by their kind: one of the rules must match. They are for the targets Source
	// and Manifest. When unset, it is every kind.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	ResourceRules []ResourceRule `json:"resourceRules,omitempty"`

	// objectSelector selects by labels: those of the object for the target Manifest, else those of the StageSet, as it is to be
	// or as it was.
	// +optional
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`

	// excludeNamespaces lists the namespaces whose StageSets the policy does not reach, by name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	ExcludeNamespaces []string `json:"excludeNamespaces,omitempty"`
}

// ResourceRule selects kinds. Every list must match; "*" in it, or an empty list, matches everything.
type ResourceRule struct {
	// apiGroups such as apps; the core group is the empty string.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	APIGroups []string `json:"apiGroups,omitempty"`
	// apiVersions such as v1, without the group.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	APIVersions []string `json:"apiVersions,omitempty"`
	// kinds such as Deployment.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	Kinds []string `json:"kinds,omitempty"`
}

// ParamKind is the kind of parameters.
type ParamKind struct {
	// apiVersion such as v1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`
	// kind such as ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
}

// ParameterNotFoundAction says what a policy without its parameters means.
// +kubebuilder:validation:Enum=Allow;Deny
type ParameterNotFoundAction string

const (
	// ParameterNotFoundDeny decides by failurePolicy, as if an expression could not be evaluated. It is the default.
	ParameterNotFoundDeny ParameterNotFoundAction = "Deny"
	// ParameterNotFoundAllow does not evaluate the policy.
	ParameterNotFoundAllow ParameterNotFoundAction = "Allow"
)

// ParamRef selects parameters, by name or by labels.
type ParamRef struct {
	// name of the parameter. Exactly one of name and selector is set.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// namespace of the parameters. When unset, it is that of the StageSet. A kind that has no namespaces ignores it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// selector of the parameters. Exactly one of name and selector is set.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// parameterNotFoundAction says what it means if there are no parameters.
	// +optional
	// +kubebuilder:default=Deny
	ParameterNotFoundAction ParameterNotFoundAction `json:"parameterNotFoundAction,omitempty"`
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

// Mutation fills in fields, or changes them. Exactly the member that patchType names is set.
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
	// override lets the mutation also change, and with jsonPatch remove, what the StageSet sets.
	// +optional
	Override bool `json:"override,omitempty"`
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
	// reason of the refusal, if all violations have the same. When unset, it is Invalid.
	// +optional
	// +kubebuilder:validation:Enum=Unauthorized;Forbidden;Invalid;RequestEntityTooLarge
	Reason metav1.StatusReason `json:"reason,omitempty"`
	// fieldPath is the field that the rule speaks of, such as spec.serviceAccountName. When unset, it is spec.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	FieldPath string `json:"fieldPath,omitempty"`
}

// AuditAnnotation is an annotation of audit events.
type AuditAnnotation struct {
	// key of the annotation, which gets the name of the policy as its prefix.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Key string `json:"key"`
	// valueExpression is CEL and evaluates to a string, or to null where there is nothing to record.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=5120
	ValueExpression string `json:"valueExpression"`
}

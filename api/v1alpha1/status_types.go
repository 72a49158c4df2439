package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of an installation.
const (
	// ConditionReady is True if the policy compiles, its parameters were found and its tests passed.
	ConditionReady = "Ready"
	// ConditionEffective is True if there is something that the policy can be evaluated on.
	ConditionEffective = "Effective"
	// ConditionAudited is True if audit is what the policy would lead to for what is stored.
	ConditionAudited = "Audited"
)

// Reasons of the conditions of an installation.
const (
	// ReasonReady says that the policy is evaluated as it is written.
	ReasonReady = "Ready"
	// ReasonInvalid says that the policy does not compile: failurePolicy decides in its place.
	ReasonInvalid = "Invalid"
	// ReasonTestsFailed says that a test of the policy has another outcome than it expects.
	ReasonTestsFailed = "TestsFailed"
	// ReasonParamsNotFound says that there are no parameters: parameterNotFoundAction decides in the policy's place.
	ReasonParamsNotFound = "ParamsNotFound"
	// ReasonEvaluationFailed says that an expression could not be evaluated lately: failurePolicy decided in its place.
	ReasonEvaluationFailed = "EvaluationFailed"
	// ReasonMatches says that at least one namespace is selected.
	ReasonMatches = "Matches"
	// ReasonNoNamespace says that no namespace is selected.
	ReasonNoNamespace = "NoNamespace"
	// ReasonDeleteNotRegistered says that the policy asks for deletions, which the installation's webhook is not called for.
	ReasonDeleteNotRegistered = "DeleteNotRegistered"
	// ReasonEvaluated says that audit is about all StageSets that are stored.
	ReasonEvaluated = "Evaluated"
	// ReasonAtReconcile says that the policy is about sources or objects, which the reconciler alone evaluates.
	ReasonAtReconcile = "AtReconcile"
	// ReasonAtAdmission says that the policy is about requests, of which what is stored says nothing.
	ReasonAtAdmission = "AtAdmission"
	// ReasonNoValidations says that the policy refuses nothing.
	ReasonNoValidations = "NoValidations"
)

// StageSetPolicyStatus is what the installations make of a policy.
type StageSetPolicyStatus struct {
	// installations has an entry for each installation that watches the policy, which only it writes.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Installations []InstallationStatus `json:"installations,omitempty"`
}

// InstallationStatus is what one installation makes of a policy.
type InstallationStatus struct {
	// name of the installation: namespace/name of its release.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Name string `json:"name"`

	// observedGeneration is the generation of the policy that this speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready, Effective and Audited.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// rules says where each validation is enforced.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Rules []RuleStatus `json:"rules,omitempty"`

	// expressionWarnings are what is questionable about expressions.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	ExpressionWarnings []ExpressionWarning `json:"expressionWarnings,omitempty"`

	// tests is the outcome of the policy's tests.
	// +optional
	Tests *TestStatus `json:"tests,omitempty"`

	// audit is what the policy says about all StageSets that are stored. It is there while the condition Audited is True.
	// +optional
	Audit *AuditStatus `json:"audit,omitempty"`
}

// EnforcementPoint is where a validation is evaluated.
// +kubebuilder:validation:Enum=Admission;Reconcile
type EnforcementPoint string

const (
	// EnforcedAtAdmission is when a StageSet is written.
	EnforcedAtAdmission EnforcementPoint = "Admission"
	// EnforcedAtReconcile is when a StageSet is reconciled.
	EnforcedAtReconcile EnforcementPoint = "Reconcile"
)

// RuleStatus says where a validation is enforced.
type RuleStatus struct {
	// name of the validation.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// enforcedAt is where it is evaluated. A validation that reads who asks, or how, is only evaluated at admission.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	EnforcedAt []EnforcementPoint `json:"enforcedAt,omitempty"`
}

// ExpressionWarning is what is questionable about an expression.
type ExpressionWarning struct {
	// fieldRef is the path of the expression.
	// +required
	// +kubebuilder:validation:MaxLength=512
	FieldRef string `json:"fieldRef"`
	// warning says what is questionable, with line and column.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	Warning string `json:"warning"`
}

// TestStatus is the outcome of tests.
type TestStatus struct {
	// passed is how many tests had the expected outcome.
	// +optional
	Passed int32 `json:"passed"`
	// failed says, for each test that had another outcome, which one.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MaxLength=2048
	Failed []string `json:"failed,omitempty"`
}

// AuditStatus is what a policy says about all StageSets that are stored.
type AuditStatus struct {
	// observedAt is when they were evaluated.
	// +required
	ObservedAt metav1.Time `json:"observedAt"`
	// evaluated is how many StageSets were evaluated.
	// +optional
	Evaluated int64 `json:"evaluated"`
	// violations is how many violations were found.
	// +optional
	Violations int64 `json:"violations"`
	// byAction is how many violations would be denied, warned about and recorded.
	// +optional
	ByAction map[ValidationAction]int64 `json:"byAction,omitempty"`
	// examples are some of the StageSets that violate the policy.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Examples []AuditExample `json:"examples,omitempty"`
}

// AuditExample is a StageSet that violates a policy.
type AuditExample struct {
	// namespace of the StageSet.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// name of the StageSet.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// message is the first violation.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message"`
}

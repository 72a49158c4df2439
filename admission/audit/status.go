package audit

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/policytest"
)

const (
	// maxConditionMessage keeps a condition readable, and far below what the schema allows.
	maxConditionMessage = 4096
	maxWarnings         = 64
	maxFieldRef         = 512
)

// assessment is what is known of the text of a policy alone.
type assessment struct {
	generation int64
	warnings   []v1alpha1.ExpressionWarning
	tests      *v1alpha1.TestStatus
}

// assess checks and tests the policies whose text it does not know yet, and forgets those that are gone.
func (a *Auditor) assess(ctx context.Context, list []v1alpha1.StageSetPolicy) {
	before := a.assessments
	a.assessments = make(map[types.UID]*assessment, len(list))
	for i := range list {
		policy := &list[i]
		known := before[policy.UID]
		if known == nil || known.generation != policy.Generation {
			known = a.assessText(ctx, policy)
		}
		if ctx.Err() == nil {
			a.assessments[policy.UID] = known
		}
	}
}

func (a *Auditor) assessText(ctx context.Context, policy *v1alpha1.StageSetPolicy) *assessment {
	made := &assessment{generation: policy.Generation}
	options := a.Check
	options.Old = policy
	warnings, err := policies.Check(ctx, policy, options)
	var problems policies.Problems
	if errors.As(err, &problems) {
		warnings = append(warnings, problems...)
	}
	for _, warning := range warnings[:min(len(warnings), maxWarnings)] {
		text := warning.Message
		if warning.Line > 0 {
			text = fmt.Sprintf("line %d, column %d: %s", warning.Line, warning.Column, text)
		}
		made.warnings = append(made.warnings, v1alpha1.ExpressionWarning{
			FieldRef: cut(warning.Field, maxFieldRef), Warning: cut(text, maxMessage),
		})
	}
	if len(policy.Spec.Tests) == 0 {
		return made
	}
	results, err := policytest.Run(ctx, policy)
	if err != nil {
		return made // it does not compile, which is said elsewhere, or the process ends
	}
	made.tests = &v1alpha1.TestStatus{}
	for _, result := range results {
		if result.Passed() {
			made.tests.Passed++
			continue
		}
		made.tests.Failed = append(made.tests.Failed, cut(result.Test+": "+strings.Join(result.Failures, "; "), maxMessage))
	}
	return made
}

// entry is what this installation makes of a policy.
func (a *Auditor) entry(ctx context.Context, v view) *v1alpha1.InstallationStatus {
	entry := &v1alpha1.InstallationStatus{
		Name:               a.Installation,
		ObservedGeneration: v.policy.Generation,
		Rules:              v.summary.Rules,
	}
	if v.assessment != nil {
		entry.ExpressionWarnings, entry.Tests = v.assessment.warnings, v.assessment.tests
	}
	audit := audited(v.policy.Name, v.summary)
	if audit.Status == metav1.ConditionTrue {
		entry.Audit = v.found.status(v.policy.Name)
	}
	for _, condition := range []metav1.Condition{a.ready(ctx, v), a.effective(v), audit} {
		condition.ObservedGeneration = v.policy.Generation
		condition.Message = cut(condition.Message, maxConditionMessage)
		entry.Conditions = append(entry.Conditions, condition)
	}
	return entry
}

func (a *Auditor) ready(ctx context.Context, v view) metav1.Condition {
	not := func(reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	if len(v.summary.Problems) > 0 {
		return not(v1alpha1.ReasonInvalid, v.summary.Problems.Error())
	}
	if v.assessment != nil && v.assessment.tests != nil && len(v.assessment.tests.Failed) > 0 {
		return not(v1alpha1.ReasonTestsFailed, strings.Join(v.assessment.tests.Failed, "\n"))
	}
	if missing := a.missingParams(ctx, v.policy); missing != "" {
		return not(v1alpha1.ReasonParamsNotFound, missing)
	}
	if found := v.found.policies[v.policy.Name]; found != nil && found.failed != "" {
		reason := v1alpha1.ReasonEvaluationFailed
		if found.paramRef {
			reason = v1alpha1.ReasonParamsNotFound
		}
		return not(reason, found.failed)
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady,
		Message: "it is evaluated as it is written",
	}
}

// missingParams says that there are no parameters, or that they cannot be read, where that does not depend on the namespace
// of a StageSet (P-09).
func (a *Auditor) missingParams(ctx context.Context, policy *v1alpha1.StageSetPolicy) string {
	kind, ref := policy.Spec.ParamKind, policy.Spec.ParamRef
	if kind == nil || ref == nil || ref.Namespace == "" {
		return ""
	}
	query := policies.ParamQuery{
		Policy: policy.Name, Kind: schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind),
		Namespace: ref.Namespace, Name: ref.Name,
	}
	if ref.Selector != nil {
		selector, err := metav1.LabelSelectorAsSelector(ref.Selector)
		if err != nil {
			return err.Error()
		}
		query.Selector = selector
	}
	switch objects, err := a.Params.Params(ctx, query); {
	case err != nil:
		return fmt.Sprintf("%s: %v", query, err)
	case len(objects) == 0 && ref.ParameterNotFoundAction != v1alpha1.ParameterNotFoundAllow:
		return fmt.Sprintf("%s: there is none (parameterNotFoundAction Deny)", query)
	}
	return ""
}

func (a *Auditor) effective(v view) metav1.Condition {
	not := func(reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionEffective, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	constraints := v.policy.Spec.MatchConstraints
	if constraints != nil && slices.Contains(constraints.Operations, v1alpha1.OperationDelete) && !v.deletes {
		return not(v1alpha1.ReasonDeleteNotRegistered, fmt.Sprintf("operations has DELETE, but ValidatingWebhookConfiguration"+
			" %s has no rule for deletions of stagesets: add DELETE to its operations", a.Configuration))
	}
	matching := 0
	for name, namespace := range v.namespaces {
		if selects(constraints, name, namespace.Labels) {
			matching++
		}
	}
	if matching == 0 {
		return not(v1alpha1.ReasonNoNamespace, "there is no namespace that matchConstraints selects")
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionEffective, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMatches,
		Message: "at least one namespace is selected",
	}
}

// audited says what of a policy the audit evaluates, and where the rest can be seen.
func audited(name string, of policies.Summary) metav1.Condition {
	not := func(reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionAudited, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	if len(of.Rules) == 0 {
		return not(v1alpha1.ReasonNoValidations, "there are no validations, so that nothing is refused")
	}
	if of.Target != v1alpha1.TargetStageSet {
		return not(v1alpha1.ReasonAtReconcile, "what is applied is evaluated by the reconciler at each pass. With the action Warn,"+
			" what Deny would refuse is in the condition Ready of each StageSet, and in its events; with Audit, it is counted by"+
			" the metric stageset_policy_decisions_total{policy=\""+name+"\",enforcement_point=\"reconcile\"}")
	}
	var requests []string
	for _, rule := range of.Rules {
		if !slices.Contains(rule.EnforcedAt, v1alpha1.EnforcedAtReconcile) {
			requests = append(requests, rule.Name)
		}
	}
	message := "all validations are evaluated on the StageSets that are stored"
	switch len(requests) {
	case 0:
	case len(of.Rules):
		return not(v1alpha1.ReasonAtAdmission, "all validations are about requests, of which what is stored says nothing")
	default:
		message = "about requests, of which what is stored says nothing, are: " + strings.Join(requests, ", ")
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionAudited, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonEvaluated, Message: message,
	}
}

func selects(constraints *v1alpha1.MatchConstraints, name string, of map[string]string) bool {
	if constraints == nil {
		return true
	}
	if slices.Contains(constraints.ExcludeNamespaces, name) {
		return false
	}
	if constraints.NamespaceSelector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(constraints.NamespaceSelector)
	return err == nil && selector.Matches(labels.Set(of))
}

// write applies the entry, and leaves those of other installations alone. An entry that says nothing new is written again
// only every interval, so that nobody is woken for nothing.
func (a *Auditor) write(ctx context.Context, policy *v1alpha1.StageSetPolicy, entry *v1alpha1.InstallationStatus) error {
	var live v1alpha1.StageSetPolicy
	if err := a.Client.Get(ctx, client.ObjectKeyFromObject(policy), &live); err != nil {
		return client.IgnoreNotFound(err)
	}
	var before v1alpha1.InstallationStatus
	for _, installation := range live.Status.Installations {
		if installation.Name == a.Installation {
			before = installation
		}
	}
	entry.Conditions = transition(before.Conditions, entry.Conditions, metav1.NewTime(a.Clock.Now()))
	if !a.news(before, *entry) {
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(entry)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"status": map[string]any{"installations": []any{content}},
	}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("StageSetPolicy"))
	object.SetName(policy.Name)
	object.SetUID(policy.UID)
	err = a.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(object),
		client.FieldOwner(a.fieldManager()), client.ForceOwnership)
	return client.IgnoreNotFound(err)
}

// fieldManager is another for each installation: a server-side apply takes away what its manager does not repeat.
func (a *Auditor) fieldManager() string {
	sum := sha256.Sum256([]byte(a.Installation))
	return fmt.Sprintf("stageset-admission/%x", sum[:6])
}

// transition is conditions with the times of those that are what they were.
func transition(before, conditions []metav1.Condition, now metav1.Time) []metav1.Condition {
	all := slices.Clone(conditions)
	for i := range all {
		all[i].LastTransitionTime = now
		if old := meta.FindStatusCondition(before, all[i].Type); old != nil && old.Status == all[i].Status {
			all[i].LastTransitionTime = old.LastTransitionTime
		}
	}
	return all
}

// news tells whether there is something to write.
func (a *Auditor) news(before, entry v1alpha1.InstallationStatus) bool {
	if before.Audit != nil && entry.Audit != nil && a.Clock.Since(before.Audit.ObservedAt.Time) < interval {
		audit := *entry.Audit
		audit.ObservedAt = before.Audit.ObservedAt
		entry.Audit = &audit
	}
	return !equality.Semantic.DeepEqual(before, entry)
}

package policies

import (
	"errors"
	"fmt"

	"github.com/stageset/stageset/api/v1alpha1"
)

// The limits of a policy. The schema has them too; policies that are no files of a cluster only meet them here.
const (
	maxItems                 = 64
	maxTests                 = 128
	maxAuditAnnotations      = 20
	maxValueExpressionLength = 5 << 10
)

// settings compiles what is not CEL.
func (c *policyCompiler) settings(spec *v1alpha1.StageSetPolicySpec) {
	if c.policy.name == "" {
		c.unusable("metadata.name", errors.New("is empty"))
	}
	switch spec.FailurePolicy {
	case "", v1alpha1.FailurePolicyFail:
	case v1alpha1.FailurePolicyIgnore:
		c.policy.ignoresFailures = true
	default:
		c.unusable("spec.failurePolicy", fmt.Errorf("%q is not Fail or Ignore", spec.FailurePolicy))
	}
	switch spec.EnforceOn {
	case "", v1alpha1.EnforceOnAll:
	case v1alpha1.EnforceOnChanges:
		c.policy.changesOnly = true
		if c.policy.target != v1alpha1.TargetStageSet {
			c.unusable("spec.enforceOn", fmt.Errorf("is Changes, which is for the target StageSet, not for %s", c.policy.target))
		}
	default:
		c.unusable("spec.enforceOn", fmt.Errorf("%q is not All or Changes", spec.EnforceOn))
	}
	c.policy.match = newMatcher(c.policy.target, spec.MatchConstraints, func(field string, err error) {
		c.unusable("spec.matchConstraints."+field, err)
	})
	c.policy.params = newParams(spec, c.allowed, func(field string, err error) { c.unusable("spec."+field, err) })
	c.policy.actions = c.actions(spec.ValidationActions)
	if len(spec.Validations)+len(spec.Mutations)+len(spec.AuditAnnotations) == 0 {
		c.report("spec", errors.New("has neither validations nor mutations nor auditAnnotations"))
	}
}

func (c *policyCompiler) actions(list []v1alpha1.ValidationAction) actions {
	var set actions
	for _, action := range list {
		switch action {
		case v1alpha1.ValidationActionDeny:
			set.deny = true
		case v1alpha1.ValidationActionWarn:
			set.warn = true
		case v1alpha1.ValidationActionAudit:
			set.audit = true
		default:
			c.unusable("spec.validationActions", fmt.Errorf("%q is not Deny, Warn or Audit", action))
		}
	}
	if set.deny && set.warn {
		c.report("spec.validationActions", errors.New("has both Deny and Warn, which would show each violation twice"))
		set.warn = false
	}
	if set == (actions{}) {
		set.deny = true
	}
	return set
}

// limits reports lists that are too long, of which each item costs time in every request.
func (c *policyCompiler) limits(spec *v1alpha1.StageSetPolicySpec) {
	for _, list := range []struct {
		field     string
		got, most int
	}{
		{"matchConditions", len(spec.MatchConditions), maxItems},
		{"variables", len(spec.Variables), maxItems},
		{"mutations", len(spec.Mutations), maxItems},
		{"validations", len(spec.Validations), maxItems},
		{"auditAnnotations", len(spec.AuditAnnotations), maxAuditAnnotations},
		{"tests", len(spec.Tests), maxTests},
	} {
		if list.got > list.most {
			c.unusable("spec."+list.field, fmt.Errorf("has %d items, more than %d", list.got, list.most))
		}
	}
	for i, a := range spec.AuditAnnotations {
		if len(a.ValueExpression) > maxValueExpressionLength {
			c.unusable(fmt.Sprintf("spec.auditAnnotations[%s].valueExpression", label(i, a.Key)),
				fmt.Errorf("is %d bytes long, more than %d", len(a.ValueExpression), maxValueExpressionLength))
		}
	}
}

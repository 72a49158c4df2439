package policies_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEnforceOnChanges: what was wrong before, and is not changed, only warns; all else is denied (P-22, P-23).
func TestEnforceOnChanges(t *testing.T) {
	const (
		interval = `
enforceOn: Changes
validations: [{name: r, message: m, expression: "object.spec.?interval.orValue('') == '1m'", fieldPath: spec.interval}]`
		whole = `
enforceOn: Changes
validations: [{name: r, message: m, expression: "object.spec.?interval.orValue('') == '1m'"}]`
		said = `
enforceOn: Changes
validations:
- {name: r, message: m, messageExpression: "string(object.spec.suspend)", expression: "false", fieldPath: spec.interval}`
		failing = `
enforceOn: Changes
validations: [{name: r, message: m, expression: "object.spec.nothing == 1", fieldPath: spec.interval}]`
		recorded = interval + "\nvalidationActions: [Deny, Audit]"
		gated    = interval + "\nmatchConditions: [{name: c, expression: \"object.spec.?suspend.orValue(false) == true\"}]"
	)
	const (
		wrong     = "spec: {interval: 2m, suspend: false, stages: [{name: web, sourceRef: {name: app}}]}"
		suspended = "spec: {interval: 2m, suspend: true, stages: [{name: web, sourceRef: {name: app}}]}"
		other     = "spec: {interval: 3m, suspend: false, stages: [{name: web, sourceRef: {name: app}}]}"
		right     = "spec: {interval: 1m, suspend: false, stages: [{name: web, sourceRef: {name: app}}]}"
	)
	for name, test := range map[string]struct {
		policy, old, object     string
		denied, warned, audited int
	}{
		"wrong before, and something else changes": {policy: interval, old: wrong, object: suspended, warned: 1},
		"wrong before, and wrong in another way":   {policy: interval, old: wrong, object: other, denied: 1},
		"right before":                             {policy: interval, old: right, object: wrong, denied: 1},
		"put right":                                {policy: interval, old: wrong, object: right},
		"the field is the spec":                    {policy: whole, old: wrong, object: suspended, denied: 1},
		"the message is another":                   {policy: said, old: wrong, object: suspended, warned: 1},
		"a failure before":                         {policy: failing, old: wrong, object: suspended, warned: 1},
		"recorded":                                 {policy: recorded, old: wrong, object: suspended, warned: 1, audited: 1},
		"not asked before":                         {policy: gated, old: wrong, object: suspended, denied: 1},
	} {
		t.Run(name, func(t *testing.T) {
			set := compile(t, policy(t, "p", test.policy))
			got := set.Validate(t.Context(), updating(stageSet(t, test.object), stageSet(t, test.old)))
			counts := [3]int{len(got.Denied), len(got.Warned), len(got.Audited)}
			if want := [3]int{test.denied, test.warned, test.audited}; counts != want {
				t.Errorf("denied, warned, audited are %v, want %v: %+v", counts, want, got)
			}
		})
	}
	set := compile(t, policy(t, "p", interval))
	if got := set.Validate(t.Context(), creating(stageSet(t, wrong))); len(got.Denied) != 1 {
		t.Errorf("it may be created: %+v", got)
	}
	if got := set.Validate(t.Context(), stored(stageSet(t, wrong))); len(got.Denied) != 0 || len(got.Warned) != 1 {
		t.Errorf("what is stored is not only warned about: %+v", got)
	}
}

// TestAuditAnnotations: what a policy records of a request, whether it keeps its rules or not.
func TestAuditAnnotations(t *testing.T) {
	const annotated = `
matchConditions: [{name: c, expression: "object.metadata.name != 'other'"}]
auditAnnotations:
- {key: stages, valueExpression: "string(object.spec.stages.size())"}
- {key: nothing, valueExpression: "null"}`
	const failing = `auditAnnotations: [{key: bad, valueExpression: "string(object.spec.nothing)"}]`
	const failed = "spec: p/bad: audit annotation cannot be evaluated: reads object.spec.nothing, " +
		"but nothing is not set (guard it with has() or .?)"
	for name, test := range map[string]struct {
		spec, object    string
		want            map[string]string
		denied, ignored []string
	}{
		"recorded": {spec: annotated, want: map[string]string{"p/stages": "1"}},
		"recorded of what is refused": {
			spec: annotated + "\nvalidations: [{name: r, message: m, expression: 'false'}]",
			want: map[string]string{"p/stages": "1"}, denied: []string{"spec: p/r: m"},
		},
		"not asked": {spec: annotated, object: "metadata: {name: other, namespace: team-a}"},
		"a failure": {spec: failing, denied: []string{failed}},
		"ignored":   {spec: failing + "\nfailurePolicy: Ignore", ignored: []string{failed}},
	} {
		t.Run(name, func(t *testing.T) {
			set := compile(t, policy(t, "p", test.spec))
			got := set.Validate(t.Context(), creating(stageSet(t, test.object)))
			for _, diff := range []string{
				cmp.Diff(test.want, got.AuditAnnotations),
				cmp.Diff(test.denied, said(got.Denied)), cmp.Diff(test.ignored, said(got.Ignored)),
			} {
				if diff != "" {
					t.Errorf("annotations, denied or ignored (-want +got):\n%s", diff)
				}
			}
			if got := set.Validate(t.Context(), stored(stageSet(t, test.object))); len(got.AuditAnnotations) > 0 {
				t.Errorf("there is no request, and still %v", got.AuditAnnotations)
			}
		})
	}
}

// TestMessageFailures: a message that cannot be evaluated is replaced, and the failure is there for the status (P-05).
func TestMessageFailures(t *testing.T) {
	set := compile(t, policy(t, "p", `validations:
- {name: r, message: m, reason: Forbidden, expression: "false", messageExpression: "string(object.spec.nothing)"}`))
	got := set.Validate(t.Context(), creating(stageSet(t, "")))
	if diff := cmp.Diff([]string{"spec: p/r: m"}, said(got.Denied)); diff != "" {
		t.Errorf("denied (-want +got):\n%s", diff)
	}
	want := []string{"spec: p/r: messageExpression cannot be evaluated: reads object.spec.nothing, " +
		"but nothing is not set (guard it with has() or .?)"}
	if diff := cmp.Diff(want, said(got.Failed)); diff != "" {
		t.Errorf("failed (-want +got):\n%s", diff)
	}
	if len(got.Denied) == 1 && got.Denied[0].Reason != "Forbidden" {
		t.Errorf("the reason is %q", got.Denied[0].Reason)
	}
}

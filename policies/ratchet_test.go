package policies_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// TestRatchet: an update that leaves the spec alone is only warned about what was wrong before (P-19, P-22, P-23).
// Everything else is denied as ever.
func TestRatchet(t *testing.T) {
	const (
		spec    = `validations: [{name: r, message: m, expression: "has(object.spec.interval)"}]`
		audited = spec + "\nvalidationActions: [Deny, Audit]"
		label   = `validations: [{name: r, message: m, expression: "object.metadata.labels.team in ['a', 'b']",
  fieldPath: metadata.labels.team}]`
		named = `validations: [{name: r, message: m, expression: "object.metadata.labels.team in ['a', 'b']",
  messageExpression: "'not a team: ' + object.metadata.labels.team"}]`
		kept       = `validations: [{name: r, message: m, expression: "object.metadata.labels.team == 'a'"}]`
		gated      = `matchConditions: [{name: c, expression: "object.metadata.labels.team == 'x'"}]` + "\n" + spec
		selected   = "matchConstraints: {objectSelector: {matchLabels: {team: x}}}\n" + spec
		transition = `validations: [{name: r, message: m,
  expression: "object.metadata.labels.team == oldObject.metadata.labels.team"}]`
		failing = `validations: [{name: r, message: m, expression: "object.spec.interval == '1m'"}]`
	)
	const (
		teamX = "metadata: {name: app, namespace: team-a, labels: {team: x}}"
		teamY = "metadata: {name: app, namespace: team-a, labels: {team: y}}"
		teamA = "metadata: {name: app, namespace: team-a, labels: {team: a}}"
		more  = "metadata: {name: app, namespace: team-a, labels: {team: x, more: labels}}"
		other = "\nspec: {suspend: true, stages: [{name: web, sourceRef: {name: app}}]}"
	)
	for name, test := range map[string]struct {
		policy, old, object     string
		denied, warned, audited int
	}{
		"wrong before":                              {policy: spec, old: teamX, object: more, warned: 1},
		"wrong before, and another spec":            {policy: spec, old: teamX, object: more + other, denied: 1},
		"wrong before, and recorded":                {policy: audited, old: teamX, object: more, warned: 1, audited: 1},
		"a failure before":                          {policy: failing, old: teamX, object: more, warned: 1},
		"the label was wrong and is":                {policy: label, old: teamX, object: more, warned: 1},
		"the label was wrong, and is in other ways": {policy: label, old: teamX, object: teamY, denied: 1},
		"the label was right":                       {policy: label, old: teamA, object: teamX, denied: 1},
		"the message is another":                    {policy: named, old: teamX, object: teamY, denied: 1},
		"the message is the same":                   {policy: named, old: teamX, object: more, warned: 1},
		"a rule about a change":                     {policy: transition, old: teamA, object: teamX, denied: 1},
		"a condition that did not hold":             {policy: gated, old: teamA, object: teamX, denied: 1},
		"a condition that held":                     {policy: gated, old: teamX, object: more, warned: 1},
		"labels that were not selected":             {policy: selected, old: teamA, object: teamX, denied: 1},
		"labels that were selected":                 {policy: selected, old: teamX, object: more, warned: 1},
		"nothing is wrong":                          {policy: kept, old: teamX, object: teamA},
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
}

// TestRatchetIsForUpdates: creating, or finding stored, what is wrong is never excused.
func TestRatchetIsForUpdates(t *testing.T) {
	set := compile(t, rule(t, "p", "false", ""))
	object := stageSet(t, "")
	for name, in := range map[string]policies.Input{
		"create":              creating(object),
		"create, with an old": requesting(admissionv1.Create, object, object),
		"stored":              stored(object),
	} {
		t.Run(name, func(t *testing.T) {
			want := []string{"spec: p/rule: is wrong"}
			if diff := cmp.Diff(want, said(set.Validate(t.Context(), in).Denied)); diff != "" {
				t.Errorf("denied (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRatchetNeedsAnAnswer: a rule that could not be evaluated for want of time, budget or Namespace excuses nothing.
func TestRatchetNeedsAnAnswer(t *testing.T) {
	const quadratic = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
	tooMuch := "true"
	for range 6 {
		tooMuch = quadratic + ".all(x, " + tooMuch + ")"
	}
	unknown := updating(stageSet(t, "metadata: {name: app, namespace: team-a, labels: {a: b}}"), stageSet(t, ""))
	unknown.Namespace = nil
	for name, test := range map[string]struct {
		policy v1alpha1.StageSetPolicy
		in     policies.Input
	}{
		"budget": {
			rule(t, "p", tooMuch, ""),
			updating(stageSet(t, "metadata: {name: app, namespace: team-a, labels: {a: b}}"), stageSet(t, "")),
		},
		"selector":        {rule(t, "p", "false", "matchConstraints: {namespaceSelector: {}}"), unknown},
		"namespaceObject": {rule(t, "p", "namespaceObject.metadata.name == 'a'", ""), unknown},
	} {
		t.Run(name, func(t *testing.T) {
			if got := compile(t, test.policy).Validate(t.Context(), test.in); len(got.Denied) != 1 {
				t.Errorf("it is not denied: %+v", got)
			}
		})
	}
}

// TestRatchetFields: the field that a rule speaks of has to be unchanged, however its path is written.
func TestRatchetFields(t *testing.T) {
	const before = "metadata: {name: app, namespace: team-a, labels: {a/b.c: x, d: x}}"
	for name, test := range map[string]struct {
		field, after string
		want         bool
	}{
		"a quoted label that is another":  {"metadata.labels['a/b.c']", "{a/b.c: y, d: x}", true},
		"a quoted label that is the same": {`metadata.labels["a/b.c"]`, "{a/b.c: x, d: y}", false},
		"all labels":                      {"metadata.labels", "{a/b.c: x, d: y}", true},
		"any label":                       {"metadata.labels[*]", "{a/b.c: x, d: y}", true},
		"a leading dot":                   {".metadata.labels.d", "{a/b.c: y, d: x}", false},
		"a label that is gone":            {"metadata.labels.d", "{a/b.c: x}", true},
		"a label that there never was":    {"metadata.labels.none", "{a/b.c: y, d: y}", false},
		"within the spec":                 {"spec.stages[*].sourceRef.namespace", "{a/b.c: y, d: y}", false},
		"a path that is not closed":       {"metadata.labels['d", "{a/b.c: x, d: y}", true},
	} {
		t.Run(name, func(t *testing.T) {
			p := rule(t, "p", "false", "")
			p.Spec.Validations[0].FieldPath = test.field
			after := stageSet(t, "metadata: {name: app, namespace: team-a, labels: "+test.after+"}")
			got := compile(t, p).Validate(t.Context(), updating(after, stageSet(t, before)))
			if denied := len(got.Denied) > 0; denied != test.want {
				t.Errorf("denied is %t, want %t: %+v", denied, test.want, got)
			}
		})
	}
}

package policies_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// TestAllViolationsAtOnce: every rule of every policy that does not hold is in one answer, in the same order each time, with
// policy, rule, field and text (P-01, P-02).
func TestAllViolationsAtOnce(t *testing.T) {
	set := compile(t,
		policy(t, "zebra", `
validations:
- {name: one, expression: 'false', message: first}
- {name: two, expression: 'true', message: never}
- {name: three, expression: 'false', message: third, fieldPath: spec.interval}
`),
		policy(t, "ape", `
variables:
- {name: names, expression: 'object.spec.stages.map(s, s.name)'}
validations:
- name: names
  expression: variables.names.size() > 1
  message: too few stages
  messageExpression: "'only\\n\\n' + variables.names.join(', ')"
  fieldPath: spec.stages
`),
	)
	want := []string{
		"spec.stages: ape/names: only; web",
		"spec: zebra/one: first",
		"spec.interval: zebra/three: third",
	}
	for name, in := range map[string]policies.Input{
		"request": creating(stageSet(t, "")),
		"stored":  stored(stageSet(t, "")),
	} {
		t.Run(name, func(t *testing.T) {
			decision := set.Validate(t.Context(), in)
			if diff := cmp.Diff(want, said(decision.Denied)); diff != "" {
				t.Errorf("denied (-want +got):\n%s", diff)
			}
			if len(decision.Warned)+len(decision.Audited)+len(decision.Ignored) > 0 {
				t.Errorf("more was said: %+v", decision)
			}
		})
	}
}

// TestActions: what a violation, or a rule that cannot be evaluated, leads to.
func TestActions(t *testing.T) {
	const wrong = "false"
	const failing = "object.spec.nothing == 1"
	violation := policies.Violation{Policy: "p", Rule: "rule", Field: "spec", Message: "is wrong"}
	failure := policies.Violation{Policy: "p", Rule: "rule", Field: "spec", Message: "cannot be evaluated: " +
		"reads object.spec.nothing, but nothing is not set (guard it with has() or .?)"}
	for name, test := range map[string]struct {
		expression, spec string
		want             policies.Decision
	}{
		"holds":      {"true", "", policies.Decision{}},
		"by default": {wrong, "", policies.Decision{Denied: []policies.Violation{violation}}},
		"Deny":       {wrong, "validationActions: [Deny]", policies.Decision{Denied: []policies.Violation{violation}}},
		"Warn":       {wrong, "validationActions: [Warn]", policies.Decision{Warned: []policies.Violation{violation}}},
		"Audit":      {wrong, "validationActions: [Audit]", policies.Decision{Audited: []policies.Violation{violation}}},
		"Warn and Audit": {wrong, "validationActions: [Warn, Audit]", policies.Decision{
			Warned: []policies.Violation{violation}, Audited: []policies.Violation{violation},
		}},
		"Deny and Audit": {wrong, "validationActions: [Audit, Deny]", policies.Decision{
			Denied: []policies.Violation{violation}, Audited: []policies.Violation{violation},
		}},
		"a failure": {failing, "", policies.Decision{
			Denied: []policies.Violation{failure}, Failed: []policies.Violation{failure},
		}},
		"a failure, Warn": {failing, "validationActions: [Warn]", policies.Decision{
			Warned: []policies.Violation{failure}, Failed: []policies.Violation{failure},
		}},
		"a failure, Ignore": {failing, "failurePolicy: Ignore", policies.Decision{
			Ignored: []policies.Violation{failure}, Failed: []policies.Violation{failure},
		}},
		"false, Ignore": {wrong, "failurePolicy: Ignore", policies.Decision{Denied: []policies.Violation{violation}}},
	} {
		t.Run(name, func(t *testing.T) {
			set := compile(t, rule(t, "p", test.expression, test.spec))
			got := set.Validate(t.Context(), creating(stageSet(t, "")))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMessages: the author of the StageSet always gets a text (P-03, P-05).
func TestMessages(t *testing.T) {
	for name, test := range map[string]struct{ expression, want string }{
		"evaluated":     {`'stage ' + object.spec.stages[0].name`, "stage web"},
		"newlines":      {`"one\ntwo"`, "one; two"},
		"fails":         {`object.spec.nothing`, "the message"},
		"empty":         {`' \n'`, "the message"},
		"too long":      {`'` + strings.Repeat("x", 6000) + `'`, strings.Repeat("x", 5117) + "…"},
		"reads a param": {`params.text`, "the message"},
	} {
		t.Run(name, func(t *testing.T) {
			p := rule(t, "p", "false", "")
			p.Spec.Validations[0].Message, p.Spec.Validations[0].MessageExpression = "the\nmessage", "string("+test.expression+")"
			decision := compile(t, p).Validate(t.Context(), creating(stageSet(t, "")))
			want := []policies.Violation{{Policy: "p", Rule: "rule", Field: "spec", Message: test.want}}
			if test.want == "the message" {
				want[0].Message = "the; message"
			}
			if diff := cmp.Diff(want, decision.Denied); diff != "" {
				t.Errorf("denied (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMatch: a policy is evaluated where its constraints and conditions let it, and nowhere else.
func TestMatch(t *testing.T) {
	const (
		deletion = "matchConstraints: {operations: [DELETE]}"
		update   = "matchConstraints: {operations: [UPDATE]}"
		gold     = "matchConstraints: {namespaceSelector: {matchLabels: {tier: gold}}}"
		silver   = "matchConstraints: {namespaceSelector: {matchLabels: {tier: silver}}}"
		prod     = "matchConstraints: {objectSelector: {matchLabels: {env: prod}}, operations: [CREATE, UPDATE, DELETE]}"
		both     = "matchConstraints: {namespaceSelector: {}, objectSelector: {matchLabels: {env: prod}}}"
		tier     = `matchConditions: [{name: c, expression: "namespaceObject.metadata.labels.tier == 'silver'"}]`
		suspend  = "{name: c, expression: 'object.spec.suspend == true'}"
	)
	plain, labelled := stageSet(t, ""), stageSet(t, "metadata: {name: app, namespace: team-a, labels: {env: prod}}")
	changed := stageSet(t, "spec: {}")
	unknown := creating(plain)
	unknown.Namespace = nil
	wrong := []string{"spec: p/rule: is wrong"}
	for name, test := range map[string]struct {
		spec string
		in   policies.Input
		want []string
	}{
		"a creation":                    {"", creating(plain), wrong},
		"an update":                     {"", updating(changed, plain), wrong},
		"a deletion":                    {"", requesting(admissionv1.Delete, nil, plain), nil},
		"a deletion that is asked for":  {deletion, requesting(admissionv1.Delete, nil, plain), wrong},
		"not a creation":                {update, creating(plain), nil},
		"stored, and not for creations": {update, stored(plain), nil},
		"stored":                        {"matchConstraints: {operations: [CREATE]}", stored(plain), wrong},
		"an excluded namespace":         {"matchConstraints: {excludeNamespaces: [team-b, team-a]}", creating(plain), nil},
		"a selected namespace":          {gold, creating(plain), wrong},
		"a namespace that is not":       {silver, creating(plain), nil},
		"a namespace that is not known": {silver, unknown, []string{"spec: p/matchConstraints: cannot be evaluated: " +
			"it selects namespaces by their labels, and the Namespace could not be read"}},
		"unknown, and not selected":   {both, unknown, nil},
		"a selected object":           {prod, creating(labelled), wrong},
		"an object that is not":       {prod, creating(plain), nil},
		"an object that was selected": {prod, updating(changed, labelled), wrong},
		"a deleted object that was":   {prod, requesting(admissionv1.Delete, nil, labelled), wrong},
		"a condition that holds":      {"matchConditions: [{name: c, expression: tenant}]", creating(plain), wrong},
		"a condition that does not":   {"matchConditions: [{name: c, expression: '!tenant'}]", creating(plain), nil},
		"one on the Namespace":        {tier, creating(plain), nil},
		"one that fails": {"matchConditions: [" + suspend + "]", creating(plain), []string{"spec: p/c: match condition " +
			"cannot be evaluated: reads object.spec.suspend, but suspend is not set (guard it with has() or .?)"}},
		"one that fails and one that does not hold": {
			"matchConditions: [" + suspend + ", {name: b, expression: 'false'}]", creating(plain), nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			decision := compile(t, rule(t, "p", "false", test.spec)).Validate(t.Context(), test.in)
			if diff := cmp.Diff(test.want, said(decision.Denied)); diff != "" {
				t.Errorf("denied (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTenant: tenant is true but in the namespaces that the installation names, and the request's namespace counts.
func TestTenant(t *testing.T) {
	ours := stageSet(t, "metadata: {name: app, namespace: platform}")
	elsewhere := creating(ours)
	elsewhere.Request.Namespace = "team-a"
	unknown := creating(stageSet(t, "metadata: {name: app}"))
	unknown.Namespace, unknown.Request.Namespace = nil, ""
	for name, test := range map[string]struct {
		platform []string
		in       policies.Input
		want     bool
	}{
		"a tenant's":               {[]string{"platform"}, creating(stageSet(t, "")), true},
		"the platform's":           {[]string{"platform"}, creating(ours), false},
		"the platform's, stored":   {[]string{"platform"}, stored(ours), false},
		"no namespace is":          {nil, creating(ours), true},
		"every namespace is":       {[]string{"*"}, creating(stageSet(t, "")), false},
		"the object says platform": {[]string{"platform"}, elsewhere, true},
		"nobody says":              {[]string{"platform"}, unknown, true},
	} {
		t.Run(name, func(t *testing.T) {
			options := policies.Options{PlatformNamespaces: test.platform}
			set, err := policies.Compile(t.Context(), []v1alpha1.StageSetPolicy{rule(t, "p", "!tenant", "")}, options)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(set.Validate(t.Context(), test.in).Denied) > 0; got != test.want {
				t.Errorf("tenant is %t, want %t", got, test.want)
			}
		})
	}
}

// TestDelete: a rule that reads object, where there is none, says so (P-04).
func TestDelete(t *testing.T) {
	set := compile(t, rule(t, "p", "object.spec.stages.size() > 0", "matchConstraints: {operations: [DELETE]}"))
	decision := set.Validate(t.Context(), requesting(admissionv1.Delete, nil, stageSet(t, "")))
	want := []string{"spec: p/rule: cannot be evaluated: reads object.spec.stages, but this is a DELETE: " +
		"object is null, use oldObject"}
	if diff := cmp.Diff(want, said(decision.Denied)); diff != "" {
		t.Errorf("denied (-want +got):\n%s", diff)
	}
}

// TestAdmissionOnly: what asks who requests is evaluated for requests alone, whatever it reads that through.
func TestAdmissionOnly(t *testing.T) {
	const asks = "request.userInfo.username == 'nobody'"
	for name, spec := range map[string]string{
		"the rule": `
validations: [{name: r, message: m, expression: "` + asks + `"}]`,
		"a variable": `
variables: [{name: a, expression: "` + asks + `"}, {name: b, expression: variables.a}]
validations: [{name: r, message: m, expression: "variables.b"}]`,
		"the message": `
validations: [{name: r, message: m, expression: "false", messageExpression: request.userInfo.username}]`,
		"a match condition": `
matchConditions: [{name: c, expression: "!(` + asks + `)"}]
validations: [{name: r, message: m, expression: "false"}]`,
		"the authorizer": `
validations: [{name: r, message: m, expression: "authorizer.path('/').check('get').allowed()"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			set := compile(t, policy(t, "p", spec))
			in := creating(stageSet(t, ""))
			in.Authorizer = deny{}
			if got := len(set.Validate(t.Context(), in).Denied); got != 1 {
				t.Errorf("%d violations for a request, want 1", got)
			}
			if got := set.Validate(t.Context(), stored(stageSet(t, ""))); !cmp.Equal(got, policies.Decision{}) {
				t.Errorf("for a stored StageSet: %+v", got)
			}
		})
	}
}

// TestStoredRequest: what does not depend on who asks is the same for a stored StageSet as when it was created.
func TestStoredRequest(t *testing.T) {
	set := compile(t, rule(t, "p", "request.operation == 'CREATE' && "+
		"request.name == 'app' && request.namespace == 'team-a' && "+
		"request.kind.kind == 'StageSet' && request.resource.resource == 'stagesets' && request.dryRun == false && "+
		"request.requestKind == request.kind && oldObject == null", ""))
	for name, in := range map[string]policies.Input{
		"request": creating(stageSet(t, "")),
		"stored":  stored(stageSet(t, "")),
	} {
		t.Run(name, func(t *testing.T) {
			if got := set.Validate(t.Context(), in); !cmp.Equal(got, policies.Decision{}) {
				t.Errorf("denied: %v", said(got.Denied))
			}
		})
	}
}

// deny allows nothing.
type deny struct{}

func (deny) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", nil
}

// panics always does.
type panics struct{}

func (panics) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	panic("boom")
}

// TestBrokenPoliciesStopNoOther: whatever one policy does, the others are evaluated (P-29, P-48, P-55).
func TestBrokenPoliciesStopNoOther(t *testing.T) {
	lines := strings.Repeat("x,", 20_000)
	in := creating(stageSet(t, "metadata: {name: app, namespace: team-a, annotations: {text: '"+lines+"'}}"))
	in.Authorizer = panics{}
	const list = "object.metadata.annotations.text.split(',')"
	expensive := strings.Repeat(list+".all(a, a != 'y') && ", 10) + "true"
	for name, expression := range map[string]string{
		"does not compile": "nobody == 1",
		"fails":            "object.spec.nothing == 1",
		"panics":           "authorizer.path('/').check('get').allowed()",
		"is quadratic":     list + ".all(a, " + list + ".all(b, a == b))",
		"is slow":          expensive,
	} {
		t.Run(name, func(t *testing.T) {
			list := []v1alpha1.StageSetPolicy{rule(t, "a", expression, ""), rule(t, "b", "false", ""), rule(t, "c", expression, "")}
			set, _ := policies.Compile(t.Context(), list, policies.Options{Timeout: 2 * time.Second})
			denied := set.Validate(t.Context(), in).Denied
			var got []string
			for _, v := range denied {
				got = append(got, v.Policy)
			}
			if diff := cmp.Diff([]string{"a", "b", "c"}, got); diff != "" {
				t.Errorf("policies that deny (-want +got):\n%s", diff)
			}
			if len(denied) == 3 && denied[1].Message != "is wrong" {
				t.Errorf("the policy between says %s", denied[1])
			}
		})
	}
}

// TestDeadline: a decision comes in time, also when the caller has none left, and fails closed.
func TestDeadline(t *testing.T) {
	set := compile(t, rule(t, "a", "true", ""), rule(t, "b", "true", "failurePolicy: Ignore"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := set.Validate(ctx, creating(stageSet(t, "")))
	const late = "cannot be evaluated: was not evaluated in time"
	a := policies.Violation{Policy: "a", Rule: "rule", Field: "spec", Message: late}
	b := policies.Violation{Policy: "b", Rule: "rule", Field: "spec", Message: late}
	want := policies.Decision{
		Denied: []policies.Violation{a}, Ignored: []policies.Violation{b}, Failed: []policies.Violation{a, b},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

// TestConcurrentUse: one Set answers many at once, and changes nothing of what it is given; run with -race.
func TestConcurrentUse(t *testing.T) {
	set := compile(t,
		policy(t, "default", `
mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{spec: Object.spec{suspend: true}}"}}]`),
		policy(t, "rules", `
variables: [{name: names, expression: "object.spec.stages.map(s, s.name)"}]
validations: [{name: r, message: m, expression: "!('web' in variables.names)"}]`),
	)
	in := creating(stageSet(t, ""))
	before := in.Object.DeepCopy()
	want := set.Validate(t.Context(), in)
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 20 {
				if _, err := set.Default(t.Context(), in); err != nil {
					t.Error(err)
				}
				if got := set.Validate(t.Context(), in); !cmp.Equal(want, got) {
					t.Errorf("got %+v", got)
				}
			}
		})
	}
	running.Wait()
	if diff := cmp.Diff(before, in.Object); diff != "" {
		t.Errorf("the object was changed (-before +after):\n%s", diff)
	}
}

package policies_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// TestProblems: everything that is wrong with a policy is said at once, with field, line and column.
func TestProblems(t *testing.T) {
	for name, test := range map[string]struct {
		spec string
		want []string
	}{
		"nothing to do": {"", []string{"policy p: spec: has neither validations nor mutations nor auditAnnotations"}},
		"every expression": {`
matchConditions: [{name: c, expression: nobody}]
variables: [{name: v, expression: nothing}]
validations: [{name: r, message: m, expression: "1", messageExpression: "2"}]
mutations: [{patchType: JSONPatch, jsonPatch: {expression: "3"}}]`, []string{
			"policy p: spec.matchConditions[c].expression: line 1, column 1: undeclared reference to 'nobody'",
			"policy p: spec.variables[v].expression: line 1, column 1: undeclared reference to 'nothing'",
			"policy p: spec.mutations[0].jsonPatch.expression: evaluates to int, not to list of JSONPatch",
			"policy p: spec.validations[r].expression: evaluates to int, not to bool",
			"policy p: spec.validations[r].messageExpression: evaluates to int, not to string",
		}},
		"a second line": {`
validations:
- name: r
  message: m
  expression: |-
    true &&
      nobody`, []string{
			"policy p: spec.validations[r].expression: line 2, column 3: undeclared reference to 'nobody'",
		}},
		"annotations of no request": {`
target: Manifest
validations: [{name: r, message: m, expression: "true"}]
auditAnnotations: [{key: a, valueExpression: "'b'"}]`, []string{
			"policy p: spec.auditAnnotations: are for the target StageSet, not for Manifest, which no request is about",
		}},
		"names": {`
matchConditions: [{name: c, expression: "true"}, {name: c, expression: "true"}]
variables: [{name: v, expression: "1"}, {name: v, expression: "2"}]
validations: [{name: "", message: m, expression: "true"}]`, []string{
			"policy p: spec.matchConditions[c].name: is used twice",
			"policy p: spec.variables[v].expression: is defined twice",
			"policy p: spec.validations[0].name: is empty",
		}},
		"no message": {`validations: [{name: r, message: "", expression: "true"}]`, []string{
			"policy p: spec.validations[r].message: is empty: it is what is shown when messageExpression fails",
		}},
		"settings": {`
failurePolicy: Perhaps
enforceOn: Sometimes
validationActions: [Deny, Warn, Shout]
matchConstraints:
  operations: [CONNECT]
  namespaceSelector: {matchExpressions: [{key: a, operator: Near}]}
  objectSelector: {matchLabels: {"-": "-"}}
validations: [{name: r, message: m, expression: "true"}]`, []string{
			`policy p: spec.failurePolicy: "Perhaps" is not Fail or Ignore`,
			`policy p: spec.enforceOn: "Sometimes" is not All or Changes`,
			`policy p: spec.matchConstraints.operations: "CONNECT" is not CREATE, UPDATE or DELETE`,
			`policy p: spec.matchConstraints.namespaceSelector: "Near" is not a valid label selector operator`,
			`policy p: spec.matchConstraints.objectSelector: `,
			`policy p: spec.validationActions: "Shout" is not Deny, Warn or Audit`,
			`policy p: spec.validationActions: has both Deny and Warn, which would show each violation twice`,
		}},
		"a target that is none": {`target: Pod`, []string{
			`policy p: spec.target: "Pod" is not StageSet, Source or Manifest`,
		}},
		"what is for another target": {`
target: Source
enforceOn: Changes
matchConstraints: {operations: [CREATE]}
validations:
- {name: r, message: m, expression: "object.kind == request.kind.kind && authorizer.path('/').check('get').allowed()"}
mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[]"}}]`, []string{
			"policy p: spec.enforceOn: is Changes, which is for the target StageSet, not for Source",
			"policy p: spec.matchConstraints.operations: are for the target StageSet, not for Source",
			"policy p: spec.mutations[0]: is for the target StageSet, not for Source",
			"policy p: spec.validations[r].expression: line 1, column 1: undeclared reference to 'object'",
			"policy p: spec.validations[r].expression: line 1, column 16: undeclared reference to 'request'",
			"policy p: spec.validations[r].expression: line 1, column 37: undeclared reference to 'authorizer'",
		}},
		"kinds of StageSets": {`
matchConstraints: {resourceRules: [{kinds: [StageSet]}]}
validations: [{name: r, message: m, expression: "true"}]`, []string{
			"policy p: spec.matchConstraints.resourceRules: are for the targets Source and Manifest, not for StageSet",
		}},
		"parameters": {`
paramKind: {apiVersion: v1, kind: Secret}
paramRef: {name: x, selector: {matchLabels: {a: b}}, parameterNotFoundAction: Perhaps}
validations: [{name: r, message: m, expression: "true"}]`, []string{
			"policy p: spec.paramKind: is Secret, which is never a parameter: every message could show it",
			"policy p: spec.paramRef: sets not exactly one of name and selector",
			`policy p: spec.paramRef.parameterNotFoundAction: "Perhaps" is not Allow or Deny`,
		}},
		"parameters of a kind that is not allowed": {`
paramKind: {apiVersion: example.com/v1, kind: Limit}
paramRef: {name: x}
validations: [{name: r, message: m, expression: "true"}]`, []string{
			"policy p: spec.paramKind: is Limit of example.com/v1, which this installation does not allow; it allows ConfigMap of " +
				"v1 (policies.paramResources)",
		}},
		"half of the parameters": {`
paramKind: {apiVersion: v1, kind: ConfigMap}
validations: [{name: r, message: m, expression: "true"}]`, []string{
			"policy p: spec.paramKind: paramKind and paramRef are set together",
		}},
		"audit annotations": {`
auditAnnotations:
- {key: a, valueExpression: "1"}
- {key: a, valueExpression: "null"}
- {key: "a/b", valueExpression: "'x'"}`, []string{
			"policy p: spec.auditAnnotations[a].valueExpression: evaluates to int, not to string or null",
			"policy p: spec.auditAnnotations[a].key: is used twice",
			`policy p: spec.auditAnnotations[a/b].key: "a/b" is not a name such as team-limit`,
		}},
		"a mutation that is two": {`
mutations:
- {patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{}"}, jsonPatch: {expression: "[]"}}
- {patchType: JSONPatch}`, []string{
			"policy p: spec.mutations[0]: patchType is ApplyConfiguration, and applyConfiguration alone is set, or JSONPatch, " +
				"and jsonPatch alone is set",
			"policy p: spec.mutations[1]: patchType is ApplyConfiguration, and applyConfiguration alone is set, or JSONPatch, " +
				"and jsonPatch alone is set",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := policies.Compile(t.Context(), []v1alpha1.StageSetPolicy{policy(t, "p", test.spec)}, policies.Options{})
			if set == nil {
				t.Error("there is no set")
			}
			var problems policies.Problems
			if !errors.As(err, &problems) {
				t.Fatalf("the error is %v, not Problems", err)
			}
			got := strings.Split(problems.Error(), "\n")
			for i := range min(len(got), len(test.want)) {
				// What apimachinery says about a label is its own business.
				if strings.HasSuffix(test.want[i], "objectSelector: ") && strings.HasPrefix(got[i], test.want[i]) {
					got[i] = test.want[i]
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnusable: a policy that cannot be understood is decided by its failurePolicy; one about something else says nothing
// of StageSets.
func TestUnusable(t *testing.T) {
	const valid = "\nvalidations: [{name: r, message: m, expression: 'true'}]"
	for name, test := range map[string]struct {
		spec            string
		denied, ignored []string
	}{
		"fails": {
			spec: "matchConstraints: {operations: [CONNECT, CREATE]}" + valid,
			denied: []string{`spec: p/policy: is not usable: spec.matchConstraints.operations: ` +
				`"CONNECT" is not CREATE, UPDATE or DELETE`},
		},
		"ignored": {
			spec:    "failurePolicy: Ignore\nvalidationActions: [Shout]" + valid,
			ignored: []string{`spec: p/policy: is not usable: spec.validationActions: "Shout" is not Deny, Warn or Audit`},
		},
		"an expression": {
			spec:   "validations: [{name: r, message: m, expression: nobody}]",
			denied: []string{"spec: p/r: does not compile: line 1, column 1: undeclared reference to 'nobody'"},
		},
		"a variable": {
			spec: "variables: [{name: v, expression: nobody}]\n" +
				"validations: [{name: r, message: m, expression: variables.v == 1}]",
			denied: []string{"spec: p/r: cannot be evaluated: variables.v does not compile: " +
				"line 1, column 1: undeclared reference to 'nobody'"},
		},
		"a message": {
			spec:   "validations: [{name: r, message: m, expression: 'false', messageExpression: nobody}]",
			denied: []string{"spec: p/r: m"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := policies.Compile(t.Context(), []v1alpha1.StageSetPolicy{policy(t, "p", test.spec)}, policies.Options{})
			if err == nil {
				t.Error("it compiles")
			}
			got := set.Validate(t.Context(), creating(stageSet(t, "")))
			if diff := cmp.Diff(test.denied, said(got.Denied)); diff != "" {
				t.Errorf("denied (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.ignored, said(got.Ignored)); diff != "" {
				t.Errorf("ignored (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCheck: text that is about to be stored is checked for more than text that is stored (P-08, P-10).
func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		spec string
		want []string
	}{
		"fine": {spec: `
matchConditions: [{name: c, expression: has(object.spec.kubeConfig)}]
variables: [{name: v, expression: "object.spec.stages.map(s, s.sourceRef)"}]
validations: [{name: r, message: m, expression: "variables.v.all(s, s.name != '')"}]
mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{spec: Object.spec{suspend: true}}"}}]`},
		"fields that StageSets do not have": {spec: `
matchConditions: [{name: c, expression: has(object.spec.kubeconfig)}]
variables: [{name: v, expression: "object.spec.stages.map(s, s.sourceRef)"}]
validations: [{name: r, message: m, expression: "variables.v.all(s, s.url != '')", messageExpression: "object.spec.nothing"}]
mutations:
- patchType: ApplyConfiguration
  applyConfiguration: {expression: "Object{spec: Object.spec{suspend: object.spec.suspended}}"}`, want: []string{
			"policy p: spec.validations[r].messageExpression: evaluates to dyn, not to string",
			"policy p: spec.matchConditions[c].expression: line 1, column 4: undefined field 'kubeconfig'",
			"policy p: spec.mutations[0].applyConfiguration.expression: line 1, column 46: undefined field 'suspended'",
			"policy p: spec.validations[r].expression: line 1, column 21: undefined field 'url'",
			"policy p: spec.validations[r].messageExpression: line 1, column 12: undefined field 'nothing'",
		}},
		"fields that are set and that StageSets do not have": {spec: `
mutations:
- patchType: ApplyConfiguration
  applyConfiguration: {expression: "Object{spec: Object.spec{intervall: '1m', ?timeout: optional.of('1m')}}"}
- patchType: ApplyConfiguration
  applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"}
- patchType: JSONPatch
  jsonPatch:
    expression: >-
      [JSONPatch{op: 'add', path: '/spec/suspended', value: true}, JSONPatch{op: 'add', path: '/spec/stages/0/path', value: '.'},
      JSONPatch{op: 'add', path: '/metadata/annotations/a.b~1c', value: ''}, JSONPatch{op: 'test', path: '', value: {}}]`,
			want: []string{
				"policy p: spec.mutations[0].applyConfiguration.expression: line 1, column 26: undefined field 'spec.intervall'",
				"policy p: spec.mutations[2].jsonPatch.expression: line 1, column 29: undefined field 'spec.suspended'",
			}},
		"what only the newest Kubernetes knows": {
			spec: `validations: [{name: r, message: m, expression: "[1, 2].includes(1)"}]`,
			want: []string{"policy p: spec.validations[r].expression: line 1, column 16: undeclared reference to 'includes'"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			made := policy(t, "p", test.spec)
			_, err := policies.Check(t.Context(), &made, policies.CheckOptions{})
			var got []string
			if err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCheckWarnings: what is questionable is said, and does not keep a policy from being stored (P-04).
func TestCheckWarnings(t *testing.T) {
	const onlyAtAdmission = "reads who asks, or how: it is evaluated at admission alone, and not again by the reconciler"
	const deleted = "reads object, which is null for a DELETE: use oldObject, or ask for request.operation first"
	for name, test := range map[string]struct {
		spec     string
		warnings []string
		problem  string
	}{
		"nothing": {spec: `validations: [{name: r, message: m, expression: "true"}]`},
		"who asks": {spec: `validations:
- {name: a, message: m, expression: "request.userInfo.username == 'joe'"}
- {name: b, message: m, expression: "true"}`, warnings: []string{
			"policy p: spec.validations[a].expression: " + onlyAtAdmission,
		}},
		"a condition on who asks": {spec: `
matchConditions: [{name: c, expression: "request.userInfo.username == 'joe'"}]
validations: [{name: a, message: m, expression: "request.userInfo.username == 'joe'"}]`, warnings: []string{
			"policy p: spec.matchConditions[c].expression: " + onlyAtAdmission + ", and so is the whole policy",
		}},
		"a deletion": {spec: `
matchConstraints: {operations: [CREATE, DELETE]}
validations:
- {name: a, message: m, expression: "has(object.spec)", messageExpression: "object.metadata.name"}
- {name: b, message: m, expression: "request.operation == 'DELETE' || has(object.spec)"}
- {name: c, message: m, expression: "object == null || has(object.spec)"}
- {name: d, message: m, expression: "has(oldObject.spec)"}`, warnings: []string{
			"policy p: spec.validations[a].expression: " + deleted,
		}, problem: "policy p: spec.validations[a].messageExpression: evaluates to dyn, not to string"},
		"a deletion that a condition leaves out": {spec: `
matchConstraints: {operations: [CREATE, DELETE]}
matchConditions: [{name: c, expression: "null != object"}]
validations: [{name: a, message: m, expression: "has(object.spec)"}]`},
		"fields": {spec: `validations:
- {name: a, message: m, expression: "true", fieldPath: spec.nothing}
- {name: b, message: m, expression: "true", fieldPath: "spec.stages[*].nothing"}
- {name: c, message: m, expression: "true", fieldPath: "metadata.labels['x']"}
- {name: d, message: m, expression: "true", fieldPath: metadata.nothing}
- {name: e, message: m, expression: "true", fieldPath: spec.kubeConfig.secretRef.name}`, warnings: []string{
			`policy p: spec.validations[a].fieldPath: "spec.nothing" is not a field of StageSets`,
			`policy p: spec.validations[d].fieldPath: "metadata.nothing" is not a field of StageSets`,
		}},
		"a field that decides": {spec: `
enforceOn: Changes
validations: [{name: a, message: m, expression: "true", fieldPath: spec.nothing}]`,
			problem: `policy p: spec.validations[a].fieldPath: "spec.nothing" is not a field of StageSets`},
	} {
		t.Run(name, func(t *testing.T) {
			made := policy(t, "p", test.spec)
			warnings, err := policies.Check(t.Context(), &made, policies.CheckOptions{})
			var got []string
			for _, warning := range warnings {
				got = append(got, warning.String())
			}
			if diff := cmp.Diff(test.warnings, got); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			problem := ""
			if err != nil {
				problem = err.Error()
			}
			if diff := cmp.Diff(test.problem, problem); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCheckUpdate: text that is stored already may be what the previous Kubernetes does not know.
func TestCheckUpdate(t *testing.T) {
	old := rule(t, "p", "[1, 2].includes(1)", "")
	changed := rule(t, "p", "[1, 2].includes(2)", "")
	warned := rule(t, "p", "[1, 2].includes(1)", "validationActions: [Warn]")
	for name, test := range map[string]struct {
		policy v1alpha1.StageSetPolicy
		old    *v1alpha1.StageSetPolicy
		wrong  bool
	}{
		"new": {old, nil, true}, "changed": {changed, &old, true}, "something else changed": {warned, &old, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := policies.Check(t.Context(), &test.policy, policies.CheckOptions{Old: test.old})
			if wrong := err != nil; wrong != test.wrong {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// TestCompileEnds: compiling stops with its context.
func TestCompileEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	list := []v1alpha1.StageSetPolicy{rule(t, "p", "true", "")}
	if _, err := policies.Compile(ctx, list, policies.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Compile: the error is %v", err)
	}
	if _, err := policies.Check(ctx, &list[0], policies.CheckOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Check: the error is %v", err)
	}
}

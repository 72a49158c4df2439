package policytest_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/policytest"
)

func policy(t *testing.T, spec string) *v1alpha1.StageSetPolicy {
	t.Helper()
	made := &v1alpha1.StageSetPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &made.Spec); err != nil {
		t.Fatal(err)
	}
	return made
}

const rules = `
variables: [{name: stages, expression: "object == null ? 0 : object.spec.stages.size()"}]
matchConstraints: {operations: [CREATE, UPDATE, DELETE]}
mutations:
- patchType: ApplyConfiguration
  applyConfiguration: {expression: "Object{spec: Object.spec{?interval: params.?interval}}"}
  # A mutation without params fails; these tests have params where they create.
matchConditions: [{name: has-params, expression: "params != null || request.operation != 'CREATE'"}]
validations:
- {name: stages, expression: "variables.stages > 1 || !tenant", message: too few stages}
- name: user
  expression: "request.userInfo.username != 'mallory' && !('bad' in request.userInfo.?groups.orValue([]))"
  message: go away
- {name: namespace, expression: "namespaceObject.metadata.name != 'closed'", message: closed}
- name: labels
  expression: "namespaceObject.metadata.labels['kubernetes.io/metadata.name'] == request.namespace"
  message: label
- {name: old, expression: "oldObject == null || !has(oldObject.spec.suspend)", message: was suspended}
`

// TestRun: what a test expects is compared with what comes, and every difference is said (P-11).
func TestRun(t *testing.T) {
	const two = "spec: {stages: [{name: a, sourceRef: {name: x}}, {name: b, sourceRef: {name: x}}]}"
	const one = "spec: {stages: [{name: a, sourceRef: {name: x}}]}"
	for name, test := range map[string]struct {
		spec, test string
		want       []string
	}{
		"allowed, as expected": {test: "{params: {}, object: {" + two + "}, expect: allow}"},
		"denied, as expected": {
			test: "{params: {}, object: {" + one + "}, expect: deny, message: too few stages}",
		},
		"not a tenant": {test: "{params: {}, object: {" + one + "}, tenant: false, expect: allow}"},
		"a user": {
			test: "{params: {}, object: {" + two + "}, user: {username: mallory}, expect: deny, message: go away}",
		},
		"a group": {
			test: "{params: {}, object: {" + two + "}, user: {groups: [bad]}, expect: deny, message: go away}",
		},
		"a namespace": {
			test: "{params: {}, object: {" + two + "}, namespace: {metadata: {name: closed}}, expect: deny, " +
				"message: closed}",
		},
		"the object's": {
			test: "{params: {}, object: {metadata: {namespace: closed}, " + two + "}, expect: deny, message: closed}",
		},
		"a deletion": {
			test: "{oldObject: {spec: {suspend: true}}, operation: DELETE, tenant: false, expect: deny, " +
				"message: suspended}",
		},
		"an update": {
			test: "{object: {" + one + "}, oldObject: {" + two + "}, expect: deny, message: too few}",
		},
		"an update, much alike": {
			test: "{object: {" + one + "}, oldObject: {" + one + "}, expect: warn, message: too few}",
		},
		"defaulted": {
			test: "{params: {interval: 1m}, object: {" + two + "}, expect: allow, defaulted: {spec: {interval: 1m, " +
				strings.TrimPrefix(two, "spec: {") + "}}",
		},
		"warns, and is tested as one that denies": {
			spec: "validationActions: [Warn]", test: "{params: {}, object: {" + one + "}, expect: deny}",
		},
		"warns": {spec: "validationActions: [Warn]", test: "{params: {}, object: {" + one + "}, expect: warn}"},
		"audits, and is tested as one that denies": {
			spec: "validationActions: [Audit]", test: "{params: {}, object: {" + one + "}, expect: deny}",
		},
		"allowed, unexpectedly": {
			test: "{params: {}, object: {" + two + "}, expect: deny, message: too few}",
			want: []string{"expected deny, but it is allowed", `expected a message with "too few"`},
		},
		"denied, unexpectedly": {
			test: "{params: {}, object: {" + one + "}, expect: allow}",
			want: []string{"expected allow, but it is denied:\n  p/stages: too few stages"},
		},
		"denied, not warned": {
			test: "{params: {}, object: {" + one + "}, expect: warn}",
			want: []string{"expected warn, but it is denied:\n  p/stages: too few stages"},
		},
		"audited, not warned": {
			spec: "validationActions: [Audit]", test: "{params: {}, object: {" + one + "}, expect: warn}",
			want: []string{"expected warn, but it is only audited:\n  p/stages: too few stages"},
		},
		"another message": {
			test: "{params: {}, object: {" + one + "}, expect: deny, message: too many}",
			want: []string{"expected a message with \"too many\":\n  p/stages: too few stages"},
		},
		"an expectation that is none": {
			test: "{params: {}, object: {" + two + "}, expect: perhaps}", want: []string{"expected perhaps, but it is allowed"},
		},
		"a failure that is ignored": {
			spec: "failurePolicy: Ignore", test: "{oldObject: {spec: {}}, object: {spec: {}}, expect: allow}",
			want: []string{"cannot be evaluated, which failurePolicy ignores: p/stages: cannot be evaluated: variables.stages " +
				"reads object.spec.stages, but stages is not set (guard it with has() or .?)"},
		},
		"a field that StageSets do not have": {
			test: "{params: {}, object: {spec: {stagse: []}}, expect: allow}",
			want: []string{"object: .spec.stagse: field not declared in schema"},
		},
		"a field that Namespaces do not have": {
			test: "{params: {}, object: {" + two + "}, namespace: {metadata: {nmae: x}}, expect: allow}",
			want: []string{`namespace: strict decoding error: unknown field "metadata.nmae"`},
		},
		"two namespaces": {
			test: "{params: {}, object: {metadata: {namespace: a}, " + two + "}, namespace: {metadata: {name: b}}, expect: allow}",
			want: []string{"object: metadata.namespace is a, but the namespace is b"},
		},
		"no object": {test: "{expect: allow}", want: []string{"object: a CREATE has one"}},
		"an object too much": {
			test: "{object: {" + two + "}, oldObject: {" + two + "}, operation: DELETE, expect: allow}",
			want: []string{"object: a DELETE has none"},
		},
		"no old object": {
			test: "{object: {" + two + "}, operation: UPDATE, expect: allow}", want: []string{"oldObject: a UPDATE has one"},
		},
		"defaulted for a deletion": {
			test: "{oldObject: {" + two + "}, operation: DELETE, tenant: false, expect: allow, defaulted: {" + two + "}}",
			want: []string{"defaulted: there is no object to default"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			made := policy(t, rules+test.spec+"\ntests: [{name: t, "+strings.TrimPrefix(test.test, "{")+"]")
			results, err := policytest.Run(t.Context(), made)
			if err != nil {
				t.Fatal(err)
			}
			want := []policytest.Result{{Policy: "p", Test: "t", Failures: test.want}}
			if diff := cmp.Diff(want, results); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
			if got := results[0].Passed(); got != (test.want == nil) {
				t.Errorf("passed is %t", got)
			}
		})
	}
}

// TestRunRelease: tests of policies about sources and objects, with what they need and what they cannot have.
func TestRunRelease(t *testing.T) {
	const source = "target: Source\nvalidations: [{name: r, message: bad, expression: \"source.name == 'app' && " +
		"source.namespace == stageSet.metadata.namespace && source.kind in ['ExternalArtifact', 'Bucket'] && " +
		"stage.name == 'web'\"}]"
	const manifest = "target: Manifest\nvalidations: [{name: r, message: bad, expression: \"object.metadata.name != 'bad' && " +
		"!target.remote\"}]"
	const two = "stageSet: {spec: {stages: [{name: web, sourceRef: {kind: Bucket, name: app}}, " +
		"{name: jobs, sourceRef: {name: x}}]}}"
	for name, test := range map[string]struct {
		spec, test string
		want       []string
	}{
		"a source":              {spec: source, test: "{expect: allow}"},
		"the source of a stage": {spec: source, test: "{" + two + ", expect: allow}"},
		"another stage":         {spec: source, test: "{" + two + ", stage: jobs, expect: deny, message: bad}"},
		"another source":        {spec: source, test: "{source: {name: other}, expect: deny}"},
		"a StageSet without stages": {
			spec: source,
			test: "{stageSet: {metadata: {namespace: a}, spec: {}}, expect: allow}",
			want: []string{`stage: the StageSet has no stage ""`},
		},
		"a stage that is none": {
			spec: source,
			test: "{stage: other, expect: allow}",
			want: []string{`stage: the StageSet has no stage "other"`},
		},
		"an object of a source": {
			spec: source,
			test: "{object: {a: b}, expect: allow}",
			want: []string{"object: a source has none: set source"},
		},
		"a request for a source": {
			spec: source,
			test: "{operation: CREATE, expect: allow}",
			want: []string{"oldObject, operation, user and defaulted are for the target StageSet"},
		},
		"an object": {
			spec: manifest,
			test: "{object: {apiVersion: v1, kind: Pod, metadata: {name: a}}, expect: allow}",
		},
		"one of several objects": {
			spec: manifest,
			test: "{objects: [{apiVersion: v1, kind: Pod, metadata: {name: a}}, {apiVersion: v1, kind: Pod, " +
				"metadata: {name: bad}}], expect: deny}",
		},
		"another cluster": {
			spec: manifest,
			test: "{target: {remote: true}, object: {apiVersion: v1, kind: Pod, metadata: {name: a}}, expect: deny}",
		},
		"no object": {spec: manifest, test: "{expect: allow}", want: []string{"object: set object or objects"}},
		"an object without kind": {
			spec: manifest,
			test: "{object: {apiVersion: v1}, expect: allow}",
			want: []string{"object: apiVersion or kind is not set"},
		},
		"a source of a StageSet": {
			spec: rules,
			test: "{source: {name: a}, expect: allow}",
			want: []string{"objects, stageSet, stage, source and target are for the targets Source and Manifest"},
		},
		"parameters that are not": {
			spec: manifest + "\nparamKind: {apiVersion: v1, kind: ConfigMap}\nparamRef: {name: x}",
			test: "{object: {apiVersion: v1, kind: Pod}, expect: deny, message: there is none}",
		},
		"parameters of any kind": {
			spec: manifest + "\nparamKind: {apiVersion: a/v1, kind: B}\nparamRef: {name: x, parameterNotFoundAction: Allow}",
			test: "{object: {apiVersion: v1, kind: Pod}, expect: allow}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			made := policy(t, test.spec+"\ntests: [{name: t, "+strings.TrimPrefix(test.test, "{")+"]")
			results, err := policytest.Run(t.Context(), made)
			if err != nil {
				t.Fatal(err)
			}
			want := []policytest.Result{{Policy: "p", Test: "t", Failures: test.want}}
			if diff := cmp.Diff(want, results); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPermissions: the user of a test may do what the test says, and nothing else.
func TestPermissions(t *testing.T) {
	const token = "validations: [{name: r, message: bad, expression: \"authorizer.group('').resource('serviceaccounts')" +
		".subresource('token').namespace('a').name('x').check('create').allowed()\"}]\n"
	for name, test := range map[string]struct {
		permissions string
		expect      string
	}{
		"nothing":             {"[]", "deny"},
		"exactly that":        {"[{verb: create, resource: serviceaccounts/token, namespace: a, name: x}]", "allow"},
		"any of the kind":     {"[{verb: create, resource: serviceaccounts/token}]", "allow"},
		"another verb":        {"[{verb: get, resource: serviceaccounts/token}]", "deny"},
		"another subresource": {"[{verb: create, resource: serviceaccounts}]", "deny"},
		"another group":       {"[{verb: create, apiGroup: apps}]", "deny"},
		"another namespace":   {"[{verb: create, namespace: b}]", "deny"},
		"another name":        {"[{verb: create, name: b}]", "deny"},
	} {
		t.Run(name, func(t *testing.T) {
			results, err := policytest.Run(t.Context(), policy(t, token+"tests: [{name: t, permissions: "+test.permissions+
				", object: {spec: {stages: []}}, expect: "+test.expect+"}]"))
			if err != nil {
				t.Fatal(err)
			}
			if !results[0].Passed() {
				t.Error(results[0].Failures)
			}
		})
	}
}

// TestCheck: a policy that compiles is refused for each test that does not pass, and for nothing else.
func TestCheck(t *testing.T) {
	const wrong = "validations: [{name: r, message: bad, expression: 'false'}]\n"
	const object = "object: {spec: {stages: []}}"
	for name, test := range map[string]struct {
		spec, want string
	}{
		"passes": {spec: wrong + "tests: [{name: a, " + object + ", expect: deny}]"},
		"fails": {
			spec: wrong + "tests: [{name: a, " + object + ", expect: deny}, {name: b, " + object + ", expect: allow, message: x}]",
			want: "policy p: spec.tests[b]: expected allow, but it is denied: p/r: bad\n" +
				"policy p: spec.tests[b]: expected a message with \"x\": p/r: bad",
		},
		"does not compile": {
			spec: "validations: [{name: r, message: bad, expression: nobody}]\ntests: [{name: a, " + object + ", expect: allow}]",
			want: "policy p: spec.validations[r].expression: line 1, column 1: undeclared reference to 'nobody'",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := policytest.Check(t.Context(), policy(t, test.spec), policies.CheckOptions{})
			got := ""
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRunDefaultedDiff: an object that is not defaulted as expected is shown with what differs, without the annotation.
func TestRunDefaultedDiff(t *testing.T) {
	made := policy(t, `
mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{spec: Object.spec{interval: '1m'}}"}}]
tests: [{name: t, object: {spec: {suspend: true}}, defaulted: {spec: {suspend: true, interval: 2m}}, expect: allow}]`)
	results, err := policytest.Run(t.Context(), made)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(results[0].Failures, "\n")
	for _, part := range []string{"defaulted (-want +got):", `"2m"`, `"1m"`} {
		if !strings.Contains(text, part) {
			t.Errorf("%s is not in:\n%s", part, text)
		}
	}
	if strings.Contains(text, "defaulted-by") {
		t.Errorf("the annotation is compared:\n%s", text)
	}
}

// TestRunDefaults: policies see a StageSet as the API server shows it to them, with the defaults of its schema: before the
// mutations, and in what they added.
func TestRunDefaults(t *testing.T) {
	made := policy(t, `
mutations:
- patchType: ApplyConfiguration
  applyConfiguration: {expression: "Object{spec: Object.spec{dependsOn: [Object.spec.dependsOn{name: 'base'}]}}"}
validations:
- {name: stages, message: m, expression: "object.spec.stages.all(s, s.prune && s.sourceRef.kind == 'ExternalArtifact')"}
- {name: added, message: m, expression: "object.spec.dependsOn.all(d, d.namespace == '')"}
- {name: old, message: m, expression: "oldObject == null || oldObject.spec.timeout == '15m'"}
tests:
- name: t
  object: {spec: {stages: [{name: a, sourceRef: {name: x}}]}}
  oldObject: {spec: {suspend: true, stages: [{name: a, sourceRef: {name: x}}]}}
  defaulted: {spec: {dependsOn: [{name: base}], stages: [{name: a, sourceRef: {name: x}}]}}
  expect: allow`)
	results, err := policytest.Run(t.Context(), made)
	if err != nil {
		t.Fatal(err)
	}
	if !results[0].Passed() {
		t.Error(results[0].Failures)
	}
}

// TestRunReleaseDefaults: so do policies about what a StageSet uses and renders.
func TestRunReleaseDefaults(t *testing.T) {
	made := policy(t, `
target: Source
validations: [{name: r, message: m, expression: "stage.path == './' && stageSet.spec.timeout == '15m'"}]
tests:
- {name: its own, expect: allow}
- {name: given, stageSet: {spec: {stages: [{name: a, sourceRef: {name: x}}]}}, expect: allow}`)
	results, err := policytest.Run(t.Context(), made)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range results {
		if !result.Passed() {
			t.Error(result)
		}
	}
}

// TestRunBroken: a policy that does not compile is not tested.
func TestRunBroken(t *testing.T) {
	results, err := policytest.Run(t.Context(), policy(t, "validations: [{name: r, message: m, expression: nobody}]"))
	var problems policies.Problems
	if !errors.As(err, &problems) || results != nil {
		t.Errorf("got %v, %v", results, err)
	}
}

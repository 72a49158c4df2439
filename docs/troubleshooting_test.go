package docs_test

import (
	"bytes"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stageset/stageset/stagesetctl/app"
)

// what brings a message: the spec of a policy, and the arguments with which stagesetctl says it. The default is to check it.
type provocation struct{ spec, arguments string }

// The arguments that have a policy evaluated, as of somebody who may do nothing.
const (
	evaluate = "test policy.yaml --object stageset.yaml"
	asked    = evaluate + " --user joe --permissions permissions.yaml"
)

var provocations = map[string]provocation{
	"undeclared reference to '…'":                                {spec: rule("objekt.spec != null")},
	"undefined field '…'":                                        {spec: rule("has(object.spec.itnerval)")},
	"found no matching overload for '…' applied to '…'":          {spec: rule("object.spec.timeout == 5")},
	"evaluates to …, not to bool":                                {spec: rule("'yes'")},
	"a StageSetPolicy has no such field":                         {spec: rule("true") + "\n  validatoins: []"},
	`"…" is not a field of StageSets`:                            {spec: rule("true") + "\n    fieldPath: spec.stagse"},
	"reads who asks, or how: it is evaluated at admission alone": {spec: rule("request.userInfo.username != 'joe'")},
	"reads object, which is null for a DELETE: use oldObject, or ask for request.operation first": {
		spec: rule("object.spec.stages.size() > 1") + "\n  matchConstraints: {operations: [DELETE]}"},
	"cannot be evaluated: reads …, but … is not set (guard it with has() or .?)": {
		spec: rule("object.spec.interval != ''"), arguments: evaluate},
	"cannot be evaluated: reads …, but this is a DELETE: object is null, use oldObject": {
		spec:      rule("object.spec.stages.size() > 1") + "\n  matchConstraints: {operations: [DELETE]}",
		arguments: evaluate + " --operation DELETE"},
	"cannot be evaluated: reads …, but params is null": {spec: rule("params.data.a == ''"), arguments: evaluate},
	"cannot be evaluated: params …: there is none (parameterNotFoundAction Deny)": {
		spec: rule("params.data.a == ''") + reference, arguments: evaluate + " --params others.yaml"},
	"cannot be evaluated: params …: say what they are with --params": {
		spec: rule("params.data.a == ''") + reference, arguments: evaluate},
	"cannot be evaluated: reads authorizer, but there is no authorizer to ask here": {
		spec: rule("authorizer.path('/a').check('get').allowed()"), arguments: evaluate + " --user joe"},
	"is …, which this installation does not allow; it allows …": {
		spec: rule("true") + strings.ReplaceAll(reference, "ConfigMap", "Service")},
	"is Secret, which is never a parameter: every message could show it": {
		spec: rule("true") + strings.ReplaceAll(reference, "ConfigMap", "Secret")},
	"costs more than 200000 units: bound the lists it loops over, and do not nest loops": {
		// Few steps that cost much each: on a busy machine, many cheap ones would run out of time before.
		spec: rule(many + ".all(a, (object.metadata.name + '" + strings.Repeat("a", 2000) + "').matches('" +
			strings.Repeat("a", 400) + "'))"),
		arguments: evaluate},
	"was not evaluated: the request needs more than 128 authorizer checks": {
		spec:      rule(many + ".all(a, " + many + ".all(b, !authorizer.path('/' + string(a * 100 + b)).check('get').allowed()))"),
		arguments: asked},
	"sets what a StageSet cannot have: …": {
		spec: "  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: \"Object{spec: Object.spec{" +
			"stages: [Object.spec.stages{name: 'a'}, Object.spec.stages{name: 'a'}]}}\"}}]",
		arguments: evaluate},
	"has both Deny and Warn, which would show each violation twice": {
		spec: rule("true") + "\n  validationActions: [Deny, Warn]"},
	"is the name of a built-in policy: choose another": {spec: rule("true"), arguments: "check built-in.yaml"},
	"expected …, but it is …": {
		spec: rule("true") + "\n  tests: [{name: a, object: {spec: {stages: []}}, expect: deny}]"},
}

const (
	reference = "\n  paramKind: {apiVersion: v1, kind: ConfigMap}\n  paramRef: {name: limits, namespace: policies}"
	many      = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]"
)

// rule is the spec of a policy with one rule.
func rule(expression string) string {
	return "  validations:\n  - name: rule\n    message: m\n    expression: \"" + expression + "\""
}

// Each message that policies.md explains is one that there is.
func TestTroubleshooting(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "policies.md"), "## Troubleshooting\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var messages []string
	for _, match := range regexp.MustCompile("(?m)^\\| `(.+?)` \\| .+ \\|$").FindAllStringSubmatch(section, -1) {
		messages = append(messages, match[1])
	}
	slices.Sort(messages)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(provocations)), messages); diff != "" {
		t.Errorf("messages (-test +policies.md):\n%s", diff)
	}
	for message, test := range provocations {
		t.Run(message, func(t *testing.T) {
			t.Chdir(t.TempDir())
			const head = "apiVersion: stages.metio.wtf/v1alpha1\nkind: StageSetPolicy\nmetadata: {name: NAME}\nspec:\n"
			for name, text := range map[string]string{
				"policy.yaml":      strings.ReplaceAll(head, "NAME", "p") + test.spec,
				"built-in.yaml":    strings.ReplaceAll(head, "NAME", "no-self-dependency") + test.spec,
				"permissions.yaml": "permissions: []",
				"others.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n" +
					"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n",
				"stageset.yaml": "apiVersion: stages.metio.wtf/v1\nkind: StageSet\nmetadata: {name: app}\n" +
					"spec: {stages: [{name: web, sourceRef: {name: app}}]}\n",
			} {
				if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			arguments := strings.Fields("policy check policy.yaml")
			if test.arguments != "" {
				arguments = strings.Fields("policy " + test.arguments)
			}
			var output bytes.Buffer
			app.Main(t.Context(), arguments, app.Streams{Out: &output, Err: &output})
			pattern := strings.ReplaceAll(regexp.QuoteMeta(message), "…", ".+")
			if !regexp.MustCompile(pattern).MatchString(output.String()) {
				t.Errorf("stagesetctl %s says\n%s", strings.Join(arguments, " "), &output)
			}
		})
	}
}

package kinds_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/policies/kinds"
)

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(text), &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

const head = "apiVersion: stages.metio.wtf/v1\nkind: StageSet\nmetadata: {name: app, namespace: shop}\n"

// TestStageSet: what the API server does to a StageSet before and after admission. That it does the same is shown in
// e2e/parity.
func TestStageSet(t *testing.T) {
	const stages = "stages: [{name: web, sourceRef: {name: app}}]"
	for name, test := range map[string]struct {
		text     string
		unknown  []string
		problems []string
		// want are fields, by their paths; null is one that there is not.
		want map[string]any
	}{
		"defaults": {
			text: head + "spec: {dependsOn: [{name: a}], " + stages + "}",
			want: map[string]any{
				"spec.deletionPolicy": "Delete", "spec.timeout": "15m", "spec.dependsOn.0.namespace": "", "spec.suspend": nil,
				"spec.stages.0.prune": true, "spec.stages.0.path": "./", "spec.stages.0.sourceRef.kind": "ExternalArtifact",
			},
		},
		"what is set stays": {
			text: head + "spec: {deletionPolicy: Orphan, stages: [{name: web, prune: false, sourceRef: {kind: Bucket, name: app}}]}",
			want: map[string]any{
				"spec.deletionPolicy": "Orphan", "spec.stages.0.prune": false, "spec.stages.0.sourceRef.kind": "Bucket",
			},
		},
		"null": {
			text: head + "spec: {deletionPolicy: null, interval: null, " + stages + "}",
			want: map[string]any{"spec.deletionPolicy": "Delete", "spec.interval": nil},
		},
		"unknown fields": {
			text: "apiVersion: stages.metio.wtf/v1\nkind: StageSet\nmetadata: {name: app, namespace: shop, lables: {a: b}}\n" +
				"spec: {itnerval: 1m, stages: [{name: web, sourceRef: {name: app, brnach: main}}]}",
			unknown: []string{"metadata.lables", "spec.itnerval", "spec.stages[0].sourceRef.brnach"},
			want: map[string]any{
				"metadata.lables": nil, "spec.itnerval": nil, "spec.stages.0.sourceRef.brnach": nil, "metadata.name": "app",
			},
		},
		"values that are not stored": {
			text: "apiVersion: stages.metio.wtf/v1\nkind: StageSet\nmetadata: {name: My App, namespace: shop}\n" +
				"spec: {deletionPolicy: Never, timeout: soon, stages: [{name: web, sourceRef: {name: app}}, " +
				"{name: web, sourceRef: {name: app}}]}",
			want:     map[string]any{"spec.deletionPolicy": "Never"},
			problems: []string{"metadata.name", "spec.deletionPolicy", "spec.stages[1]", "spec.timeout"},
		},
		"a name that is made up": {text: "metadata: {generateName: app-, namespace: shop}\nspec: {" + stages + "}"},
		"nothing":                {text: "{}", problems: []string{"metadata.name", "metadata.namespace", "spec"}},
		"metadata that is none":  {text: "metadata: [a]\nspec: {" + stages + "}", problems: []string{"metadata", "metadata"}},
	} {
		t.Run(name, func(t *testing.T) {
			kind, err := kinds.StageSet()
			if err != nil {
				t.Fatal(err)
			}
			fields := parse(t, test.text)
			if diff := cmp.Diff(test.unknown, kind.Prune(fields)); diff != "" {
				t.Errorf("unknown fields (-want +got):\n%s", diff)
			}
			kind.Default(fields)
			for path, want := range test.want {
				if diff := cmp.Diff(want, at(fields, strings.Split(path, "."))); diff != "" {
					t.Errorf("%s (-want +got):\n%s", path, diff)
				}
			}
			var problems []string
			for _, problem := range kind.Validate(t.Context(), fields) {
				problems = append(problems, problem.Field)
			}
			if diff := cmp.Diff(test.problems, problems); diff != "" {
				t.Errorf("fields with problems (-want +got):\n%s", diff)
			}
		})
	}
}

// at is the field of value at a path, whose numbers are of items; nil if there is none.
func at(value any, path []string) any {
	if len(path) == 0 {
		return value
	}
	if i, err := strconv.Atoi(path[0]); err == nil {
		return at(value.([]any)[i], path[1:])
	}
	fields, _ := value.(map[string]any)
	field, there := fields[path[0]]
	if !there {
		return nil
	}
	return at(field, path[1:])
}

// TestStageSetPolicy: a namespace is nothing that a policy has, but the API server does not mind.
func TestStageSetPolicy(t *testing.T) {
	kind, err := kinds.StageSetPolicy()
	if err != nil {
		t.Fatal(err)
	}
	fields := parse(t, "metadata: {name: p, namespace: shop}\nspec: {validations: [{name: r, expression: 'true', message: m}]}")
	if unknown := kind.Prune(fields); len(unknown) > 0 {
		t.Errorf("unknown fields %v", unknown)
	}
	if problems := kind.Validate(t.Context(), fields); len(problems) > 0 {
		t.Error(problems)
	}
}

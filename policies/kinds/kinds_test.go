package kinds_test

import (
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
	for name, test := range map[string]struct {
		text     string
		unknown  []string
		problems []string
		want     string
	}{
		"defaults": {
			text: head + "spec: {dependsOn: [{name: a}], stages: [{name: web, sourceRef: {name: app}}]}",
			want: head + "spec: {deletionPolicy: Delete, timeout: 15m, dependsOn: [{name: a, namespace: ''}], " +
				"stages: [{name: web, path: ./, prune: true, sourceRef: {kind: ExternalArtifact, name: app}}]}",
		},
		"what is set stays": {
			text: head + "spec: {deletionPolicy: Orphan, timeout: 1m, stages: [{name: web, path: x, prune: false, " +
				"sourceRef: {kind: Bucket, name: app}}]}",
			want: head + "spec: {deletionPolicy: Orphan, timeout: 1m, stages: [{name: web, path: x, prune: false, " +
				"sourceRef: {kind: Bucket, name: app}}]}",
		},
		"unknown fields": {
			text: "apiVersion: stages.metio.wtf/v1\nkind: StageSet\nmetadata: {name: app, namespace: shop, lables: {a: b}}\n" +
				"spec: {itnerval: 1m, stages: [{name: web, sourceRef: {name: app, brnach: main}}]}",
			unknown: []string{"metadata.lables", "spec.itnerval", "spec.stages[0].sourceRef.brnach"},
			want: head + "spec: {deletionPolicy: Delete, timeout: 15m, " +
				"stages: [{name: web, path: ./, prune: true, sourceRef: {kind: ExternalArtifact, name: app}}]}",
		},
		"values that are not stored": {
			text: "apiVersion: stages.metio.wtf/v1\nkind: StageSet\nmetadata: {name: My App, namespace: shop}\n" +
				"spec: {deletionPolicy: Never, timeout: soon, stages: [{name: web, sourceRef: {name: app}}, " +
				"{name: web, sourceRef: {name: app}}]}",
			want: "apiVersion: stages.metio.wtf/v1\nkind: StageSet\nmetadata: {name: My App, namespace: shop}\n" +
				"spec: {deletionPolicy: Never, timeout: soon, stages: [{name: web, path: ./, prune: true, " +
				"sourceRef: {kind: ExternalArtifact, name: app}}, {name: web, path: ./, prune: true, " +
				"sourceRef: {kind: ExternalArtifact, name: app}}]}",
			problems: []string{"metadata.name", "spec.deletionPolicy", "spec.stages[1]", "spec.timeout"},
		},
		"a name that is made up": {
			text: "metadata: {generateName: app-, namespace: shop}\nspec: {stages: [{name: web, sourceRef: {kind: Bucket, name: app}}]}",
			want: "metadata: {generateName: app-, namespace: shop}\nspec: {deletionPolicy: Delete, timeout: 15m, " +
				"stages: [{name: web, path: ./, prune: true, sourceRef: {kind: Bucket, name: app}}]}",
		},
		"nothing": {
			text: "{}", want: "{}", problems: []string{"metadata.name", "metadata.namespace", "spec"},
		},
		"metadata that is none": {
			text: "metadata: [a]\nspec: {stages: [{name: web, sourceRef: {kind: Bucket, name: app}}]}",
			want: "metadata: [a]\nspec: {deletionPolicy: Delete, timeout: 15m, " +
				"stages: [{name: web, path: ./, prune: true, sourceRef: {kind: Bucket, name: app}}]}",
			problems: []string{"metadata", "metadata"},
		},
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
			if diff := cmp.Diff(parse(t, test.want), fields); diff != "" {
				t.Errorf("defaulted (-want +got):\n%s", diff)
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

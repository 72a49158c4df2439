package policies_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// fromSource is the source of the stage web of a StageSet in namespace team-a.
func fromSource(t *testing.T) policies.SourceInput {
	return policies.SourceInput{
		StageSet: stageSet(t, `
metadata: {name: app, namespace: team-a, labels: {tier: front}}
spec: {stages: [{name: web, path: ./web, sourceRef: {name: app}}]}`),
		Stage:     "web",
		Namespace: namespace("team-a", map[string]string{"tier": "gold"}),
		Source: v1alpha1.SourceFacts{
			APIVersion: "source.toolkit.fluxcd.io/v1", Kind: "GitRepository", Namespace: "team-a", Name: "app",
			URL: "https://example.com/app.git", Revision: "main@sha1:abc", Digest: "sha256:def", Verified: true,
		},
	}
}

// rendered is a Deployment of that stage.
func rendered(t *testing.T) policies.ManifestInput {
	return policies.ManifestInput{
		SourceInput: fromSource(t),
		Object: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": map[string]any{"name": "web", "namespace": "team-a", "labels": map[string]any{"app": "web"}},
			"spec":     map[string]any{"replicas": int64(2)},
		}},
		Target: v1alpha1.TargetFacts{Remote: true, Server: "https://remote:6443", ServiceAccountName: "deployer"},
	}
}

// TestVariablesOfRelease: what policies about sources and objects see, and which of them are asked.
func TestVariablesOfRelease(t *testing.T) {
	const both = `stageSet.metadata.name == 'app' && stage.path == './web' && tenant && params == null &&
namespaceObject.metadata.labels['tier'] == 'gold' && source.apiVersion == 'source.toolkit.fluxcd.io/v1' &&
source.kind == 'GitRepository' && source.namespace == 'team-a' && source.name == 'app' &&
source.url == 'https://example.com/app.git' && source.revision == 'main@sha1:abc' && source.digest == 'sha256:def' &&
source.verified`
	const object = `&& object.spec.replicas == 2 && target.remote && target.server == 'https://remote:6443' &&
target.serviceAccountName == 'deployer'`
	const sources, objects = "target: Source\nmatchConstraints: ", "target: Manifest\nmatchConstraints: "
	for name, test := range map[string]struct {
		expression, spec string
		source, manifest int
	}{
		"a source, as it is":           {both, "target: Source", 0, 0},
		"an object, as it is":          {both + object, "target: Manifest", 0, 0},
		"a source that is refused":     {"false", "target: Source", 1, 0},
		"an object that is refused":    {"false", "target: Manifest", 0, 1},
		"a StageSet that is refused":   {"false", "", 0, 0},
		"a stage that fails":           {"stage.nothing == 1", "target: Source", 1, 0},
		"a kind":                       {"false", objects + "{resourceRules: [{kinds: [Deployment]}]}", 0, 1},
		"a kind of another group":      {"false", objects + "{resourceRules: [{apiGroups: ['']}]}", 0, 0},
		"a kind of another version":    {"false", objects + "{resourceRules: [{apiVersions: [v2]}]}", 0, 0},
		"every kind":                   {"false", objects + "{resourceRules: [{apiGroups: ['*'], kinds: ['*']}]}", 0, 1},
		"one of several rules":         {"false", objects + "{resourceRules: [{kinds: [A]}, {apiGroups: [apps]}]}", 0, 1},
		"a kind of source":             {"false", sources + "{resourceRules: [{kinds: [Bucket]}]}", 0, 0},
		"labels of the object":         {"false", objects + "{objectSelector: {matchLabels: {app: web}}}", 0, 1},
		"other labels of the object":   {"false", objects + "{objectSelector: {matchLabels: {tier: front}}}", 0, 0},
		"labels of the StageSet":       {"false", sources + "{objectSelector: {matchLabels: {tier: front}}}", 1, 0},
		"labels of the namespace":      {"false", sources + "{namespaceSelector: {matchLabels: {tier: gold}}}", 1, 0},
		"a namespace that is excluded": {"false", sources + "{excludeNamespaces: [team-a]}", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			set := compile(t, rule(t, "p", test.expression, test.spec))
			source, manifest := set.ValidateSource(t.Context(), fromSource(t)), set.ValidateManifest(t.Context(), rendered(t))
			got := [2]int{len(source.Denied), len(manifest.Denied)}
			if want := [2]int{test.source, test.manifest}; got != want {
				t.Errorf("denied are %v, want %v: %v %v", got, want, source.Denied, manifest.Denied)
			}
		})
	}
}

// TestHasTarget: nobody has to collect what no policy asks for.
func TestHasTarget(t *testing.T) {
	set := compile(t, rule(t, "p", "source.verified", "target: Source"))
	got := map[v1alpha1.Target]bool{}
	for _, target := range []v1alpha1.Target{v1alpha1.TargetStageSet, v1alpha1.TargetSource, v1alpha1.TargetManifest} {
		got[target] = set.HasTarget(target)
	}
	want := map[v1alpha1.Target]bool{
		v1alpha1.TargetStageSet: false, v1alpha1.TargetSource: true, v1alpha1.TargetManifest: false,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
}

// TestReleaseWithoutFacts: what is not known is decided, and nothing panics.
func TestReleaseWithoutFacts(t *testing.T) {
	set := compile(t,
		rule(t, "a", "stageSet.metadata.name == 'app'", "target: Source"),
		rule(t, "b", "object.kind == 'ConfigMap' && namespaceObject.metadata.name == ''", "target: Manifest"),
		rule(t, "c", "true", "target: Manifest\nmatchConstraints: {namespaceSelector: {}, objectSelector: {}}"))
	want := []string{": a/rule: cannot be evaluated: reads stageSet.metadata.name, but metadata is not set " +
		"(guard it with has() or .?)"}
	if diff := cmp.Diff(want, said(set.ValidateSource(t.Context(), policies.SourceInput{}).Denied)); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	want = []string{
		": b/rule: cannot be evaluated: reads namespaceObject.metadata.name, but the Namespace could not be read",
		": c/matchConstraints: cannot be evaluated: it selects namespaces by their labels, and the Namespace could not be read",
	}
	got := set.ValidateManifest(t.Context(), policies.ManifestInput{Object: object})
	if diff := cmp.Diff(want, said(got.Denied)); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
}

// An annotation that fails denies no release: there is no audit event that it could be of.
func TestAuditAnnotationsDenyNoRelease(t *testing.T) {
	wrong := rule(t, "p", "true", `{target: Source, auditAnnotations: [{key: a, valueExpression: "string(stageSet.spec.none)"}]}`)
	set, err := policies.Compile(t.Context(), []v1alpha1.StageSetPolicy{wrong}, policies.Options{})
	var problems policies.Problems
	if !errors.As(err, &problems) {
		t.Fatalf("got %v, want a problem", err)
	}
	if decision := set.ValidateSource(t.Context(), policies.SourceInput{StageSet: stageSet(t, ""), Stage: "web"}); len(decision.Denied) > 0 {
		t.Errorf("denied: %q", said(decision.Denied))
	}
}

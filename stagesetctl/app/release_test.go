package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stageset/stageset/stagesetctl/app"
)

// written are files of a directory of the test, by name.
func written(t *testing.T, files map[string]string) (path func(name string) string) {
	t.Helper()
	dir := t.TempDir()
	path = func(name string) string { return filepath.Join(dir, name) }
	for name, content := range files {
		if err := os.WriteFile(path(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// Nobody can offer an artifact for a producer of another namespace; the reconciler does not take it either.
func TestArtifactOfAnotherNamespacesProducerIsNoSource(t *testing.T) {
	for name, test := range map[string]struct {
		namespace string
		used      bool
	}{
		"its own namespace": {namespace: "shop", used: true}, "none": {namespace: `""`, used: true},
		"another": {namespace: "other"},
	} {
		t.Run(name, func(t *testing.T) {
			path := written(t, map[string]string{"artifact.yaml": `
apiVersion: source.toolkit.fluxcd.io/v1
kind: ExternalArtifact
metadata: {name: chart-1, namespace: shop}
spec: {sourceRef: {apiVersion: example.com/v1, kind: Chart, name: chart, namespace: ` + test.namespace + `}}`})
			out, stderr, _ := run(t, "", "policy", "test", "testdata/release/policies.yaml",
				"--stageset", "testdata/release/stageset.yaml", "--object", path("artifact.yaml"))
			if used := strings.Contains(out, "sources/verified: "); used != test.used { // which is about sources alone
				t.Errorf("the artifact is used: %t, want %t\n%s%s", used, test.used, out, stderr)
			}
		})
	}
}

// A binding that goes to the stage's target namespace names the accounts that go there with it, and no others.
func TestSubjectsGoToTheTargetNamespace(t *testing.T) {
	path := written(t, map[string]string{
		"policy.yaml": `
apiVersion: stages.metio.wtf/v1alpha1
kind: StageSetPolicy
metadata: {name: subjects}
spec:
  target: Manifest
  matchConstraints: {resourceRules: [{apiGroups: [rbac.authorization.k8s.io]}]}
  validations:
  - name: where
    expression: "false"
    message: m
    messageExpression: object.subjects.map(s, s.namespace + '/' + s.name).join(' ')`,
		"stageset.yaml": `
apiVersion: stages.metio.wtf/v1
kind: StageSet
metadata: {name: shop, namespace: shop}
spec:
  serviceAccountName: deployer
  stages: [{name: app, targetNamespace: web, sourceRef: {name: app}}]`,
		"rendered.yaml": `
apiVersion: v1
kind: ServiceAccount
metadata: {name: moves, namespace: base}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: edit}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects:
- {kind: ServiceAccount, name: moves, namespace: base}
- {kind: ServiceAccount, name: stays, namespace: base}
- {kind: ServiceAccount, name: nowhere}`,
	})
	out, stderr, code := run(t, "", "policy", "test", path("policy.yaml"),
		"--stageset", path("stageset.yaml"), "--object", path("rendered.yaml"))
	if want := "web/moves base/stays web/nowhere"; code != app.ExitFindings || !strings.Contains(out, want) {
		t.Errorf("exit code %d, want %q:\n%s%s", code, want, out, stderr)
	}
}

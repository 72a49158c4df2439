package e2e

import (
	"crypto/sha512"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/blake3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/artifacts"
	"github.com/stageset/stageset/e2e/cluster"
)

// T-79, T-83, T-88: whatever a file is called and however it is written, its objects are applied, and nothing in them
// changes on the way: what is passed over in silence would be pruned.
func TestOddFilesAreUsed(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{
		"app/a b.yaml":     configMap("space", "1"),
		"app/ü.yaml":       configMap("umlaut", "1"),
		"app/x@2.yaml":     configMap("at", "1"),
		"app/short.yml":    configMap("yml", "1"),
		"app/only.json":    `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "json"}, "data": {"value": "1"}}`,
		"app/windows.yaml": "\ufeff" + strings.ReplaceAll(configMap("windows", "1"), "\n", "\r\n"),
		"app/empty.yaml":   "# nothing\n---\n---\n# nothing again\n---\n" + configMap("last", "1") + "---\n",
		"app/list.yaml": "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n  items:\n" +
			"  - {apiVersion: v1, kind: ConfigMap, metadata: {name: nested}, data: {value: '1'}}\n",
		"app/anchor.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: anchor, annotations: &a {value: '1'}}\n" +
			"data: {<<: *a, other: '2'}\n",
		"app/texts.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: texts}\n" +
			"data:\n  value: '1'\n  octal: '004'\n  hash: '553640e6'\n  'no': 'yes'\n  '1': one\n  folded: >-\n    a\n    b\\\n",
		"app/web.yaml": strings.Replace(deployment("web", "1"), "spec: {containers",
			"spec: {terminationGracePeriodSeconds: 9007199254740993, containers", 1),
		"app/README.md": "no manifest",
	})
	n.stageSet(t, "app", `
serviceAccountName: `+deployer+`
stages: [{name: app, path: app, sourceRef: {kind: GitRepository, name: app}}]`)
	n.waitReady(t, "app", "app", revision)
	for _, name := range []string{"space", "umlaut", "at", "yml", "json", "windows", "last", "nested", "anchor"} {
		n.hasValue(t, name, "1")
	}
	var texts corev1.ConfigMap
	if err := n.Client.Get(t.Context(), client.ObjectKey{Namespace: n.namespace, Name: "texts"}, &texts); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"value": "1", "octal": "004", "hash": "553640e6", "no": "yes", "1": "one", "folded": `a b\`}
	if diff := cmp.Diff(want, texts.Data); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
	web := n.live(t, cluster.Ref("apps/v1", "Deployment", n.namespace, "web"))
	seconds, _, err := unstructured.NestedInt64(web.Object, "spec", "template", "spec", "terminationGracePeriodSeconds")
	if err != nil || seconds != 9007199254740993 {
		t.Errorf("terminationGracePeriodSeconds is %d (%v), want 9007199254740993", seconds, err)
	}
}

// T-80: every algorithm that Flux writes digests with, in either case.
func TestDigestsOfEveryAlgorithmAreChecked(t *testing.T) {
	n := shared(t).tenant(t)
	publishWith := func(value string, digest func(archive []byte) string) artifacts.Artifact {
		archive := artifacts.TarGz(t, map[string]string{"config.yaml": configMap("settings", value)})
		artifact := n.Artifacts.Put("gitrepository", n.namespace, "app", archive)
		artifact.Digest = digest(archive)
		publish(t, n.Cluster, n.namespace, "app", artifact)
		return artifact
	}
	publishWith("0", func(archive []byte) string { return fmt.Sprintf("sha512:%x", sha512.Sum512(archive)) })
	n.stageSet(t, "app", oneStage("app"))
	for name, digest := range map[string]func(archive []byte) string{
		"sha384":     func(archive []byte) string { return fmt.Sprintf("sha384:%x", sha512.Sum384(archive)) },
		"sha512":     func(archive []byte) string { return fmt.Sprintf("sha512:%x", sha512.Sum512(archive)) },
		"upper case": func(archive []byte) string { return fmt.Sprintf("sha512:%X", sha512.Sum512(archive)) },
		"blake3":     func(archive []byte) string { return fmt.Sprintf("blake3:%x", blake3.Sum256(archive)) },
	} {
		t.Run(name, func(t *testing.T) {
			artifact := publishWith(name, digest)
			n.waitReady(t, "app", "app", artifact.Revision)
			n.hasValue(t, "settings", name)
		})
	}
}

package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync/atomic"
	"testing"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/artifacts"
)

const (
	fileOfTwo     = "two/config.yaml"
	kustomization = "one/kustomization.yaml"
	// scaler is an object of which the API has several versions.
	scaler = "apiVersion: autoscaling/%s\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\n" +
		"spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}\n"
)

// badManifests are files that do not render, with what the message says. The reason is BuildFailed where none is given.
var badManifests = map[string]struct {
	files  map[string]string
	reason string
	texts  []string
}{
	"missing path": {
		files: map[string]string{"other/config.yaml": configMap("settings", "2")},
		texts: []string{"stage one", `path "one" does not exist in the artifact`},
	},
	"invalid YAML": {
		files: map[string]string{"one/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings\ndata: {}\n"},
		texts: []string{"stage one", "one/config.yaml:3: invalid YAML"},
	},
	"tab": {
		files: map[string]string{"one/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n\tname: settings\n"},
		texts: []string{"one/config.yaml:4: "},
	},
	"control character": {
		files: map[string]string{"one/config.yaml": configMap("settings", "2") + "# \u0093\n"},
		texts: []string{"one/config.yaml:5: ", "U+0093"},
	},
	"duplicate key": {
		files: map[string]string{"one/config.yaml": configMap("settings", "2") + "data: {value: again}\n"},
		texts: []string{"one/config.yaml:5: ", `"data"`},
	},
	"in the second document": {
		files: map[string]string{
			"one/config.yaml": documents(configMap("settings", "2"), "kind: ConfigMap\nmetadata: {name: x}\n"),
		},
		texts: []string{"one/config.yaml:6: ", "apiVersion is missing"},
	},
	"invalid JSON": { // T-88: it is not passed over
		files: map[string]string{"one/config.json": "{\"apiVersion\": \"v1\",\n\"kind\": }"},
		texts: []string{"one/config.json:2: "},
	},
	"no name": {
		files: map[string]string{"one/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: settings-}\n"},
		texts: []string{"one/config.yaml:1: ", "generateName"},
	},
	"unknown kind": {
		files: map[string]string{"one/gizmo.yaml": "apiVersion: example.invalid/v1\nkind: Gizmo\nmetadata: {name: g}\n"},
		texts: []string{"one/gizmo.yaml:1: ", "Gizmo", "example.invalid"},
	},
	"same object in two stages": {
		files:  map[string]string{"one/config.yaml": configMap("settings", "2"), fileOfTwo: configMap("settings", "3")},
		reason: v1.ReasonDuplicateObject,
		texts:  []string{"ConfigMap", "settings", `stage "one" (one/config.yaml:1)`, `stage "two" (two/config.yaml:1)`},
	},
	"same object in two versions": {
		files:  map[string]string{"one/a.yaml": fmt.Sprintf(scaler, "v1"), "two/b.yaml": fmt.Sprintf(scaler, "v2")},
		reason: v1.ReasonDuplicateObject,
		texts:  []string{"HorizontalPodAutoscaler", "one/a.yaml:1", "two/b.yaml:1"},
	},
	"same object in one stage": {
		files:  map[string]string{"one/a.yaml": configMap("settings", "2"), "one/b.yaml": configMap("settings", "3")},
		reason: v1.ReasonDuplicateObject,
		texts:  []string{"ConfigMap", "settings", "one/a.yaml:1", "one/b.yaml:1"},
	},
	"out of the artifact": { // T-21
		files: map[string]string{kustomization: "resources: [../../../../etc/passwd]\n"},
		texts: []string{kustomization, "../../../../etc/passwd"},
	},
	"includes itself": { // T-21
		files: map[string]string{kustomization: "resources: [../one]\n"},
		texts: []string{"kustomizations include each other: one → one"},
	},
	"missing resource": {
		files: map[string]string{
			kustomization: "resources:\n- config.yaml\n- missing.yaml\n", "one/config.yaml": configMap("settings", "2"),
		},
		texts: []string{kustomization, "missing.yaml"},
	},
	"openapi": {
		files: map[string]string{kustomization: "resources: [config.yaml]\nopenapi: {path: schema.json}\n",
			"one/config.yaml": configMap("settings", "2"), "one/schema.json": "{}"},
		texts: []string{kustomization + ":2: ", "openapi"},
	},
	"helm": {
		files: map[string]string{kustomization: "helmCharts:\n- {name: nginx, repo: https://charts.invalid, version: 1.0.0}\n"},
		texts: []string{kustomization + ":1: ", "helmCharts"},
	},
}

// T-83, T-89: a build that fails names file and line, and both places of an object that is there twice.
func TestBadManifestsLeaveTheReleaseAlone(t *testing.T) {
	r := shared(t).tenant(t).running(t)
	for name, tc := range badManifests {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{fileOfTwo: configMap("more", "1")}
			maps.Copy(files, tc.files)
			r.offer(t, artifacts.TarGz(t, files))
			r.refuses(t, cmp.Or(tc.reason, v1.ReasonBuildFailed), tc.texts...)
		})
	}
}

// T-82: a base that is somewhere else is refused by name, before any connection.
func TestRemoteBaseIsNeverFetched(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var connections atomic.Int32
	go func() {
		for {
			connection, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			connections.Add(1)
			connection.Close()
		}
	}()
	t.Cleanup(func() { listener.Close() })
	address := listener.Addr().String()
	r := shared(t).tenant(t).running(t)
	for name, content := range map[string]string{
		"http":      "resources: ['http://" + address + "/base.yaml']\n",
		"https":     "resources: ['https://" + address + "/base.yaml']\n",
		"git":       "resources: ['git::http://" + address + "/base.git']\n",
		"ssh":       "resources: ['ssh://git@" + address + "/base.git?ref=main']\n",
		"component": "components: ['http://" + address + "/component']\n",
		"crd":       "crds: ['http://" + address + "/crd.json']\n",
		"patch":     "resources: [config.yaml]\npatches: [{path: 'http://" + address + "/patch.yaml'}]\n",
	} {
		t.Run(name, func(t *testing.T) {
			r.offer(t, artifacts.TarGz(t, map[string]string{
				kustomization: content, "one/config.yaml": configMap("settings", "2"), fileOfTwo: configMap("more", "1"),
			}))
			r.refuses(t, v1.ReasonBuildFailed, kustomization+":", address)
		})
	}
	if got := connections.Load(); got != 0 {
		t.Errorf("%d connections were made", got)
	}
}

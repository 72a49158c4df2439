package chart_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/crds"
)

const (
	// defaults is the mode that the others are compared with.
	defaults = "default"
	// certificateInFiles is the one in which somebody else makes the certificate.
	certificateInFiles = "certificate-in-files"
)

// modes are values, by what they are for. What each of them changes is in testdata.
var modes = map[string]string{
	defaults:        "",
	"single-tenant": "rbac: {clusterAdmin: true}",
	"some-accounts": "rbac: {tokenRequest: {namespaces: [team-a, team-b], audiences: [https://issuer.example.com]}}",
	"trusted-keys": `
tenancy: {trustNamespaceLabel: true, defaultServiceAccount: deployer, platformNamespaces: [flux-system]}`,
	"some-namespaces": "controller: {watchNamespaces: [team-a, team-b]}",
	"confined":        "controller: {noCrossNamespaceRefs: true}",
	"delete-policies": "webhook: {deletePolicies: true, servicePort: 8443}",
	"parameters": `
policies:
  rules: {verified-source: Deny, no-self-dependency: Off}
  reservedNamespaces: [flux-system]
  trustedRequesters: ["system:serviceaccount:flux-system:kustomize-controller"]
  paramResources:
  - {apiVersion: v1, kind: ConfigMap, resource: configmaps, namespaces: [policies]}
  - {apiVersion: example.com/v1, kind: Limit, resource: limits}
  - {apiVersion: example.com/v1, kind: Quota, resource: quotas, namespaces: ["*"]}`,
	certificateInFiles: `
webhook: {annotations: {cert-manager.io/inject-ca-from: delivery-system/delivery}}
admission: {certificateSecret: delivery-certificate, flags: {cert-provider: files}}`,
	"traced": `
tracing: {endpoint: "https://collector.observability.svc:4317", samplingRatio: 0.1, caConfigMap: collector-ca}`,
	"as-many-objects-as-possible": `
image: {pullSecrets: [registry]}
admission:
  image: {digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}
  priorityClassName: system-cluster-critical
  podLabels: {team: platform}
reconciler:
  image: {tag: v9}
  hashKeySecret: hash-key
  env: [{name: HTTPS_PROXY, value: "http://proxy.example.com"}]
  podAnnotations: {example.com/scrape: "no"}
  nodeSelector: {pool: platform}
  tolerations: [{key: platform, operator: Exists}]
  affinity: {nodeAffinity: {}}
networkPolicy: {extraEgress: [{ports: [{port: 3128}]}]}
tracing: {endpoint: "http://collector.example.com:4317"}
serviceMonitor: {enabled: true, labels: {prometheus: platform}}
prometheusRule: {enabled: true, labels: {prometheus: platform}}
dashboards: {enabled: true, labels: {grafana: platform}, annotations: {grafana_folder: StageSet}}`,
	"one-reconciler": "reconciler: {replicas: 1, flags: {leader-elect: false}}",
	"as-few-objects-as-possible": `
rbac: {aggregateToView: false, aggregateToEdit: false}
networkPolicy: {enabled: false}
reconciler: {flags: {metrics-bind-address: "0"}}
admission: {flags: {metrics-bind-address: "0"}}`,
}

var checksum = regexp.MustCompile(`checksum/policy-config: [0-9a-f]{64}`)

// Each mode is what is written down: the default in full, of the others only the objects that it has not, or has otherwise.
func TestRenderings(t *testing.T) {
	base := documents(t, defaults)
	for mode := range modes {
		t.Run(mode, func(t *testing.T) {
			got := documents(t, mode)
			if mode != defaults {
				got = changes(base, got)
			}
			path := filepath.Join("testdata", mode+".yaml")
			text := strings.Join(got, "---\n")
			if *update {
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), text); diff != "" {
				t.Errorf("%s; run go test with -update (-want +got):\n%s", path, diff)
			}
		})
	}
}

// documents are the objects of a mode as YAML, each under its name, without CRDs, what all have, and what differs with each
// value.
func documents(t *testing.T, mode string) []string {
	t.Helper()
	var texts []string
	for _, object := range render(t, modes[mode]+"\ncrds: {install: false}\n") {
		withoutCommonLabels(t, object)
		withoutDashboards(t, object)
		content, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		text := checksum.ReplaceAllString(string(content), "checksum/policy-config: ...")
		texts = append(texts, "# "+describe(object)+"\n"+text)
	}
	return texts
}

// withoutDashboards leaves of dashboards, which are in charts/stageset/files, only how they are called.
func withoutDashboards(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	data, _, err := unstructured.NestedStringMap(object.Object, "data")
	if err != nil {
		t.Fatal(err)
	}
	for file := range data {
		if strings.HasSuffix(object.GetName(), "-dashboard") {
			data[file] = "..."
			if err := unstructured.SetNestedStringMap(object.Object, data, "data"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// withoutCommonLabels checks the labels that every object has, and takes them away.
func withoutCommonLabels(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	labels := object.GetLabels()
	for label, want := range map[string]string{
		"app.kubernetes.io/name": "stageset", "app.kubernetes.io/instance": name,
		"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/version": "0.1.0", "helm.sh/chart": "stageset-0.1.0",
	} {
		if labels[label] != want {
			t.Errorf("%s has the label %s: %q, want %q", describe(object), label, labels[label], want)
		}
		delete(labels, label)
	}
	if len(labels) == 0 {
		labels = nil
	}
	object.SetLabels(labels)
}

// changes are the documents that base does not have, or has otherwise, and a comment for each that is gone.
func changes(base, documents []string) []string {
	title := func(document string) string {
		first, _, _ := strings.Cut(document, "\n")
		return first
	}
	present, before := map[string]bool{}, map[string]string{}
	for _, document := range base {
		before[title(document)] = document
	}
	var texts []string
	for _, document := range documents {
		present[title(document)] = true
		if before[title(document)] != document {
			texts = append(texts, document)
		}
	}
	for _, document := range base {
		if !present[title(document)] {
			texts = append(texts, title(document)+" is not there\n")
		}
	}
	return texts
}

// What the programs read once at their start starts new Pods when it changes.
func TestPolicyConfigStartsNewPods(t *testing.T) {
	sums := map[string]string{}
	for _, values := range []string{"", "controller: {noCrossNamespaceRefs: true}"} {
		for _, object := range render(t, values) {
			if object.GetKind() != "Deployment" {
				continue
			}
			annotations, _, err := unstructured.NestedStringMap(object.Object, "spec", "template", "metadata", "annotations")
			if err != nil {
				t.Fatal(err)
			}
			sum := annotations["checksum/policy-config"]
			if sum == "" || sum == sums[object.GetName()] {
				t.Errorf("%s with %q: checksum %q, before %q", object.GetName(), values, sum, sums[object.GetName()])
			}
			sums[object.GetName()] = sum
		}
	}
	if len(sums) != 2 {
		t.Errorf("Deployments: %v", sums)
	}
}

// Each program has its dashboard, about this release, where Grafana's sidecar looks for it; nothing else of the files is
// changed.
func TestDashboardsAreOfTheRelease(t *testing.T) {
	rendered := map[string]*unstructured.Unstructured{}
	for _, object := range render(t, `dashboards: {enabled: true, annotations: {grafana_folder: Delivery}}`) {
		if object.GetKind() == "ConfigMap" && object.GetLabels()["grafana_dashboard"] == "1" {
			rendered[object.GetName()] = object
		}
	}
	for _, component := range []string{"admission", "reconciler"} {
		object := rendered[name+"-"+component+"-dashboard"]
		if object == nil || object.GetAnnotations()["grafana_folder"] != "Delivery" {
			t.Errorf("the dashboard of %s is %v", component, object)
			continue
		}
		file, err := os.ReadFile(filepath.Join(chart, "files", "dashboards", "stageset-"+component+".json"))
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := unstructured.NestedStringMap(object.Object, "data")
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			name + "-" + component + ".json": strings.ReplaceAll(string(file), "stageset-"+component, name+"-"+component),
		}
		if diff := cmp.Diff(want, data); diff != "" {
			t.Errorf("the dashboard of %s (-want +got):\n%s", component, diff)
		}
	}
	if len(rendered) != 2 {
		t.Errorf("%d dashboards are rendered", len(rendered))
	}
}

// The CRDs are those of the API, and neither helm nor Flux deletes them with the rest of the chart.
func TestCRDsAreThoseOfTheAPI(t *testing.T) {
	rendered := map[string]*unstructured.Unstructured{}
	for _, object := range render(t, "") {
		if object.GetKind() == "CustomResourceDefinition" {
			rendered[object.GetName()] = object
		}
	}
	entries, err := crds.FS.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(rendered) {
		t.Errorf("%d CRDs are rendered, %d are there", len(rendered), len(entries))
	}
	for _, entry := range entries {
		content, err := crds.FS.ReadFile(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		want := parse(t, string(content))[0]
		annotations := want.GetAnnotations()
		annotations["helm.sh/resource-policy"], annotations["kustomize.toolkit.fluxcd.io/prune"] = "keep", "disabled"
		want.SetAnnotations(annotations)
		if diff := cmp.Diff(want, rendered[want.GetName()]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", entry.Name(), diff)
		}
	}
}

func TestLint(t *testing.T) {
	for mode, values := range modes {
		if _, err := helm(t, "lint", "--strict", chart, "--values", valuesFile(t, values)); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

// A value that cannot be used is refused by its name, before anything is sent to a cluster.
func TestWrongValuesAreNamed(t *testing.T) {
	for name, test := range map[string]struct{ values, want string }{
		"an unknown one":       {"controler: {}", "additional properties 'controler' not allowed"},
		"an unknown one below": {"rbac: {clusteradmin: true}", "at '/rbac': additional properties 'clusteradmin' not allowed"},
		"an unknown flag":      {"reconciler: {flags: {concurrency: 3}}", "'concurrency' not allowed"},
		"another type":         {"rbac: {clusterAdmin: yes please}", "at '/rbac/clusterAdmin': got string, want boolean"},
		"a number of replicas": {"admission: {replicas: 0}", "at '/admission/replicas': minimum: got 0, want 1"},
		"a port":               {"webhook: {servicePort: 70000}", "at '/webhook/servicePort'"},
		"a duration":           {"reconciler: {flags: {default-interval: 10}}", "at '/reconciler/flags/default-interval'"},
		"a namespace":          {"rbac: {tokenRequest: {namespaces: [Team]}}", "at '/rbac/tokenRequest/namespaces/0'"},
		"an audience":          {`rbac: {tokenRequest: {audiences: ["a' || true"]}}`, "at '/rbac/tokenRequest/audiences/0'"},
		"Secrets as parameters": {
			"policies: {paramResources: [{apiVersion: v1, kind: Secret, resource: secrets}]}", "/kind': 'not' failed"},
		"a switch": {"policies: {rules: {verified-source: Enforce}}", "at '/policies/rules/verified-source'"},
		"a public debug address": {
			`admission: {flags: {debug-bind-address: ":6060"}}`, "at '/admission/flags/debug-bind-address'"},
		"files without a Secret": {"admission: {flags: {cert-provider: files}}", "at '/admission/certificateSecret': minLength"},
		"a Secret without files": {"admission: {certificateSecret: own}", "at '/admission/certificateSecret': maxLength"},
		"tenants who are cluster-admin": {
			"rbac: {clusterAdmin: true, aggregateToEdit: true}", "at '/rbac/aggregateToEdit': value must be one of false, <nil>"},
		"platform namespaces where all are": {
			"{rbac: {clusterAdmin: true}, tenancy: {platformNamespaces: [a]}}", "at '/tenancy/platformNamespaces': maxItems"},
		"reconcilers that none is elected of": {
			"reconciler: {flags: {leader-elect: false}}", "at '/reconciler/replicas': maximum: got 2, want 1"},
		"alerts about what is not measured": {
			`{prometheusRule: {enabled: true}, admission: {flags: {metrics-bind-address: "0"}}}`,
			"at '/admission/flags/metrics-bind-address': 'not' failed"},
		"a monitor of what is not measured": {
			`{serviceMonitor: {enabled: true}, reconciler: {flags: {metrics-bind-address: "0"}}}`,
			"at '/reconciler/flags/metrics-bind-address': 'not' failed"},
		"a monitor that nobody lets in": {
			"{serviceMonitor: {enabled: true}, networkPolicy: {metricsFrom: []}}",
			"at '/networkPolicy/metricsFrom': minItems: got 0, want 1"},
		"a port twice": {
			`admission: {flags: {health-probe-bind-address: ":9443"}}`,
			"webhook-port and health-probe-bind-address have the same port"},
		"a port twice on loopback": {
			`reconciler: {flags: {debug-bind-address: "127.0.0.1:8080"}}`,
			"metrics-bind-address and debug-bind-address have the same port"},
		"a digest":                   {"reconciler: {image: {digest: latest}}", "at '/reconciler/image/digest'"},
		"a collector that is no URL": {"tracing: {endpoint: collector:4317}", "at '/tracing/endpoint'"},
		"more than all traces":       {"tracing: {samplingRatio: 1.5}", "at '/tracing/samplingRatio': maximum: got 1.5, want 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := helm(t, "template", "any", chart, "--values", valuesFile(t, test.values))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want a refusal with %q", err, test.want)
			}
		})
	}
	for _, release := range []string{"with.dot", "1st", strings.Repeat("long", 13) + "r"} {
		_, err := helm(t, "template", release, chart)
		if want := "the release is named " + release + ", but"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want a refusal with %q", err, want)
		}
	}
}

package drift

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/reconciler/inventory"
)

// applied is what an apply would make of a Deployment.
const applied = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team-a, labels: {app: web}, finalizers: [ours]}
spec:
  template:
    spec:
      containers:
      - {name: app, image: "app:1", args: [a, b]}
      - {name: sidecar, image: "sidecar:1"}
`

func TestExplain(t *testing.T) {
	cases := map[string]struct {
		// live is a JSON merge patch of what an apply would make: what somebody did; managed are the entries of managedFields.
		live    string
		managed []string
		want    string
	}{
		"a field was set": {
			live:    "metadata: {labels: {app: theirs}}",
			managed: []string{entry("kubectl-edit", "Update", `{"f:metadata":{"f:labels":{"f:app":{}}}}`)},
			want:    "metadata.labels.app (set by kubectl-edit)",
		},
		"an item of a list was set": {
			live: `spec: {template: {spec: {containers: [{name: app, image: "app:2", args: [a, b]},
				{name: sidecar, image: "sidecar:1"}]}}}`,
			managed: []string{
				entry("ours", "Apply", inContainer("app", "args")), entry("other", "Update", inContainer("app", "image")),
				entry("injector", "Update", inContainer("sidecar", "image")),
			},
			want: `spec.template.spec.containers[name="app"].image (set by other)`,
		},
		// Nobody has what was removed.
		"a field was removed": {live: "metadata: {labels: {app: null}}", want: "metadata.labels.app"},
		"one was set and one removed": {
			live:    "{metadata: {labels: {app: null}}, spec: {paused: true}}",
			managed: []string{entry("kubectl", "Update", `{"f:spec":{"f:paused":{}}}`)},
			want:    "metadata.labels.app, spec.paused (set by kubectl)",
		},
		"it was set in our name": {
			live:    "metadata: {labels: {app: theirs}}",
			managed: []string{entry("ours", "Apply", `{"f:metadata":{"f:labels":{"f:app":{}}}}`)},
			want:    "metadata.labels.app",
		},
		// Our name with another operation is somebody else.
		"it was updated in our name": {
			live:    "metadata: {labels: {app: theirs}}",
			managed: []string{entry("ours", "Update", `{"f:metadata":{"f:labels":{"f:app":{}}}}`)},
			want:    "metadata.labels.app (set by ours)",
		},
		// The item of a set is its own name: it would be a value.
		"an item was added to a set": {
			live:    "metadata: {finalizers: [ours, secret]}",
			managed: []string{entry("other", "Update", `{"f:metadata":{"f:finalizers":{"v:\"secret\"":{}}}}`)},
			want:    "metadata.finalizers (set by other)",
		},
		"an entry that cannot be read": {
			live: "metadata: {labels: {app: theirs}}", managed: []string{entry("other", "Update", `[]`)}, want: "metadata.labels.app",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			answer := object(t, applied)
			live := object(t, applied)
			merge(live.Object, object(t, tc.live).Object)
			metadata := live.Object["metadata"].(map[string]any)
			var entries []any
			for _, text := range tc.managed {
				entries = append(entries, object(t, text).Object)
			}
			metadata["managedFields"] = entries
			got := Explain(live, answer, "ours").String()
			if diff := cmp.Diff("Deployment.apps team-a/web: "+tc.want, got); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFoundNamesTenFields(t *testing.T) {
	found := Found{Key: inventory.Key{Kind: "ConfigMap", Name: "a"}, State: Suspect}
	for i := range 12 {
		found.Paths = append(found.Paths, fmt.Sprintf("data.%d", i))
	}
	want := "ConfigMap a: data.0, data.1, data.2, data.3, data.4, data.5, data.6, data.7, data.8, data.9, and 2 more"
	if diff := cmp.Diff(want, found.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

func TestLoopNamesFieldAndManager(t *testing.T) {
	key := inventory.Key{Kind: "ConfigMap", Namespace: "team-a", Name: "web"}
	cases := map[string]struct {
		paths, managers []string
		want            string
	}{
		"one manager": {paths: []string{"data.a"}, managers: []string{"m"}, want: "field data.a is also set by manager m"},
		"two managers": {
			paths: []string{"data.a", "data.b"}, managers: []string{"m", "n"},
			want: "fields data.a, data.b are also set by managers m, n",
		},
		"no manager": {paths: []string{"data.a"}, want: "field data.a is changed by others again and again"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Found{Key: key, State: Suspect, Paths: tc.paths, Managers: tc.managers}.Loop()
			if diff := cmp.Diff("ConfigMap team-a/web: "+tc.want, got); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}

func entry(manager, operation, fields string) string {
	return fmt.Sprintf("{manager: %s, operation: %s, fieldsType: FieldsV1, fieldsV1: %s}", manager, operation, fields)
}

// inContainer is a field of a container, as managedFields have it.
func inContainer(name, field string) string {
	return fmt.Sprintf(`{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"%s\"}":{"f:%s":{}}}}}}}`, name, field)
}

func object(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &obj.Object); err != nil {
		t.Fatal(err)
	}
	return obj
}

// merge is a JSON merge patch.
func merge(into, patch map[string]any) {
	for key, value := range patch {
		fields, isMap := value.(map[string]any)
		existing, wasMap := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap && wasMap:
			merge(existing, fields)
		default:
			into[key] = value
		}
	}
}

package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestLean(t *testing.T) {
	source := func(spec, status map[string]any) map[string]any {
		return map[string]any{
			"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "ExternalArtifact",
			"metadata": map[string]any{"namespace": "team", "name": "app", "uid": "u", "resourceVersion": "7", "generation": int64(2)},
			"spec":     spec, "status": status,
		}
	}
	full := source(
		map[string]any{"sourceRef": map[string]any{"kind": "Producer", "name": "app"}, "interval": "1m"},
		map[string]any{
			"artifact":   map[string]any{"digest": "sha256:1", "revision": "1", "url": "http://a", "size": int64(9)},
			"conditions": []any{map[string]any{"type": "Ready"}},
		})
	full["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{"manager": "m"}}
	full["metadata"].(map[string]any)["annotations"] = map[string]any{"a": "b"}
	odd := source(map[string]any{}, map[string]any{"artifact": "none"})

	tests := map[string]struct{ in, want map[string]any }{
		"keeps what watches read": {full, source(
			map[string]any{"sourceRef": map[string]any{"kind": "Producer", "name": "app"}},
			map[string]any{"artifact": map[string]any{"digest": "sha256:1", "revision": "1", "url": "http://a"}})},
		"fields of the wrong type are missing": {odd, map[string]any{
			"apiVersion": odd["apiVersion"], "kind": odd["kind"], "metadata": odd["metadata"]}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Lean(&unstructured.Unstructured{Object: test.in})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got.(*unstructured.Unstructured).Object); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestLeanStripsManagedFields(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "team", Labels: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}}
	got, err := Lean(namespace)
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"a": "b"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

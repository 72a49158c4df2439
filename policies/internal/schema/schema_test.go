package schema_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/policies/internal/schema"
)

// TestSchemas: the published schema of StageSets has what the CustomResourceDefinition leaves out, their metadata.
func TestSchemas(t *testing.T) {
	schemas, err := schema.Schemas()
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"apiVersion", "kind", "metadata", "spec", "status"} {
		if _, ok := schemas[schema.StageSet].Properties[field]; !ok {
			t.Errorf("StageSet has no %s", field)
		}
	}
	if _, ok := schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"].Properties["labels"]; !ok {
		t.Error("metadata has no labels")
	}
}

// TestConverter: fields are those of the schema, and the stages of a StageSet are told by their names.
func TestConverter(t *testing.T) {
	converter, err := schema.Converter()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		spec map[string]any
		want string
	}{
		"a StageSet": {spec: map[string]any{"stages": []any{map[string]any{"name": "a"}, map[string]any{"name": "b"}}}},
		"a field":    {spec: map[string]any{"nothing": true}, want: ".spec.nothing: field not declared in schema"},
		"two of them": {map[string]any{"stages": []any{map[string]any{"name": "a"}, map[string]any{"name": "a"}}},
			`.spec.stages: duplicate entries for key [name="a"]`},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: map[string]any{"spec": test.spec}}
			object.SetGroupVersionKind(v1.GroupVersion.WithKind("StageSet"))
			_, err := converter.ObjectToTyped(object)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

package build

import (
	"context"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// What the scan gives kustomize instead of the files changes nothing about what it renders.
func TestKustomizeRendersAsFromDisk(t *testing.T) {
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = types.LoadRestrictionsNone
	warmUp()
	resources, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), "testdata/shop/overlays/prod")
	if err != nil {
		t.Fatal(err)
	}
	var want []map[string]any
	for _, resource := range resources.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := yaml.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		want = append(want, fields)
	}
	m, err := Build(context.Background(), os.DirFS("testdata/shop"), Options{Path: "overlays/prod"})
	if err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	for _, object := range m.Objects() {
		var fields map[string]any // with the same types for numbers
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		got = append(got, fields)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-from disk +built):\n%s", diff)
	}
}

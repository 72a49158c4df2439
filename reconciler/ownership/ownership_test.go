package ownership

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/stageset/stageset/api/v1"
)

// Whatever a manifest says of its owner, the stamp says who applied it.
func TestTheStampNamesTheOwner(t *testing.T) {
	forged := map[string]string{v1.LabelName: "victim", v1.LabelNamespace: "team-b"}
	for name, owner := range map[string]Owner{
		"short names": {Namespace: "team-a", Name: "shop"},
		"long names":  {Namespace: "team-a", Name: strings.Repeat("shop", 40)},
	} {
		t.Run(name, func(t *testing.T) {
			rendered := &unstructured.Unstructured{Object: map[string]any{}}
			rendered.SetLabels(forged)
			rendered.SetAnnotations(forged)
			stamped := owner.Stamp(rendered, "app")
			if got, found := Of(stamped); !found || got != owner {
				t.Errorf("got %s, %t, want %s", got, found, owner)
			}
			// Somebody annotates the live object later.
			stamped.SetAnnotations(forged)
			if got, _ := Of(stamped); got.Namespace != owner.Namespace || got.Name == "victim" {
				t.Errorf("an annotation made %s its owner", got)
			}
		})
	}
}

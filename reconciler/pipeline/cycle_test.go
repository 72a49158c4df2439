package pipeline

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stageset/stageset/reconciler/failure"
)

// drawn is a graph as text: "a: b c" says that a depends on b and c.
type drawn []string

func (d drawn) DependsOn(_ context.Context, name types.NamespacedName) ([]types.NamespacedName, error) {
	for _, line := range d {
		from, to, _ := strings.Cut(line, ":")
		if from != name.Name {
			continue
		}
		var names []types.NamespacedName
		for _, one := range strings.Fields(to) {
			names = append(names, types.NamespacedName{Namespace: "team-a", Name: one})
		}
		return names, nil
	}
	return nil, nil
}

type broken struct{}

func (broken) DependsOn(context.Context, types.NamespacedName) ([]types.NamespacedName, error) {
	return nil, errors.New("no cache")
}

// T-28: the members of a cycle are found, and nobody else.
func TestPathBack(t *testing.T) {
	cases := map[string]struct {
		graph drawn
		want  map[string]string // of each StageSet
	}{
		"none": {graph: drawn{"a: b c", "b: d", "c: d"}, want: map[string]string{"a": "", "b": "", "d": ""}},
		"two, and one that waits for them": {
			graph: drawn{"a: b", "b: a", "c: a"}, want: map[string]string{"a": "a b a", "b": "b a b", "c": ""},
		},
		"itself":       {graph: drawn{"a: a"}, want: map[string]string{"a": "a a"}},
		"the shortest": {graph: drawn{"a: b c", "b: d", "d: a", "c: a"}, want: map[string]string{"a": "a c a", "b": "b d a b"}},
		"two that share a member": {
			graph: drawn{"a: b", "b: a c", "c: b"}, want: map[string]string{"a": "a b a", "b": "b a b", "c": "c b c"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for from, want := range tc.want {
				self := types.NamespacedName{Namespace: "team-a", Name: from}
				first, _ := tc.graph.DependsOn(t.Context(), self)
				path, err := pathBack(t.Context(), tc.graph, self, first)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, name := range path {
					got = append(got, name.Name)
				}
				if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
					t.Errorf("path from %s (-want +got):\n%s", from, diff)
				}
			}
		})
	}
	_, err := pathBack(t.Context(), broken{}, types.NamespacedName{Name: "a"}, []types.NamespacedName{{Name: "b"}})
	if failure.From(err).Kind != failure.Transient || err == nil {
		t.Errorf("got %v, want a transient failure", err)
	}
}

package drift

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	v1 "github.com/stageset/stageset/api/v1"
)

func TestCompare(t *testing.T) {
	rendered := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
		"labels": map[string]any{"app": "web"}, "annotations": map[string]any{"note": "x"},
		"finalizers": []any{"ours"}, "ownerReferences": []any{map[string]any{"uid": "owner", "controller": true}},
	}}}
	// live is what somebody wrote after us.
	live := func(generation int64, change func(*Live)) *Live {
		seen := &Live{
			UID: "1", ResourceVersion: "11", Generation: generation, Managed: true,
			Labels: map[string]string{"app": "web", "theirs": "y"}, Annotations: map[string]string{"note": "x"},
			Finalizers: []string{"theirs", "ours"}, Owners: []metav1.OwnerReference{{UID: "theirs"}, {UID: "owner", Controller: ptr.To(true)}},
		}
		change(seen)
		return seen
	}
	nothing := func(*Live) {}
	recorded := v1.InventoryEntry{UID: "1", ResourceVersion: "10", Generation: 2, RenderedHash: "h"}
	withoutGeneration := recorded
	withoutGeneration.Generation = 0
	cases := map[string]struct {
		hash     string
		recorded v1.InventoryEntry
		live     *Live
		want     State
	}{
		"does not exist":      {hash: "h", recorded: recorded, want: Missing},
		"never recorded":      {hash: "h", live: &Live{UID: "1"}, want: Changed},
		"written ahead only":  {hash: "h", recorded: v1.InventoryEntry{}, live: &Live{UID: "1"}, want: Changed},
		"another content":     {hash: "new", recorded: recorded, live: &Live{UID: "1", ResourceVersion: "10"}, want: Changed},
		"another object":      {hash: "h", recorded: recorded, live: &Live{UID: "2", ResourceVersion: "10"}, want: Replaced},
		"untouched":           {hash: "h", recorded: recorded, live: &Live{UID: "1", ResourceVersion: "10"}, want: Unchanged},
		"only its status was": {hash: "h", recorded: recorded, want: Unchanged, live: live(2, nothing)},
		"its spec was":        {hash: "h", recorded: recorded, want: Suspect, live: live(3, nothing)},
		// Metadata does not count in the generation.
		"a label of ours was": {hash: "h", recorded: recorded, want: Suspect,
			live: live(2, func(l *Live) { l.Labels = map[string]string{"app": "no"} })},
		"an annotation of ours was removed": {hash: "h", recorded: recorded, want: Suspect,
			live: live(2, func(l *Live) { l.Annotations = nil })},
		"a finalizer of ours was removed": {hash: "h", recorded: recorded, want: Suspect,
			live: live(2, func(l *Live) { l.Finalizers = []string{"theirs"} })},
		"an owner of ours was removed": {hash: "h", recorded: recorded, want: Suspect,
			live: live(2, func(l *Live) { l.Owners = nil })},
		"an owner of ours controls it no more": {hash: "h", recorded: recorded, want: Suspect,
			live: live(2, func(l *Live) { l.Owners[1].Controller = nil })},
		"a kind without generation was": {hash: "h", recorded: withoutGeneration, want: Suspect, live: live(0, nothing)},
		"nobody says that we applied it": {hash: "h", recorded: recorded, want: Disowned,
			live: live(2, func(l *Live) { l.Managed = false })},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Compare(rendered, tc.hash, tc.recorded, tc.live); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

// Without what was applied, everything that may matter is suspect.
func TestTouched(t *testing.T) {
	recorded := v1.InventoryEntry{UID: "1", ResourceVersion: "10", Generation: 2}
	withoutGeneration := recorded
	withoutGeneration.Generation = 0
	cases := map[string]struct {
		recorded v1.InventoryEntry
		live     *Live
		want     State
	}{
		"does not exist": {recorded: recorded, want: Missing},
		"another object": {recorded: recorded, live: &Live{UID: "2", ResourceVersion: "10"}, want: Replaced},
		"untouched":      {recorded: recorded, live: &Live{UID: "1", ResourceVersion: "10"}, want: Unchanged},
		"only its status was": {recorded: recorded, want: Unchanged,
			live: &Live{UID: "1", ResourceVersion: "11", Generation: 2, Managed: true}},
		"its spec was": {recorded: recorded, want: Suspect,
			live: &Live{UID: "1", ResourceVersion: "11", Generation: 3, Managed: true}},
		"a kind without generation was": {recorded: withoutGeneration, want: Suspect,
			live: &Live{UID: "1", ResourceVersion: "11", Managed: true}},
		"nobody says that we applied it": {recorded: recorded, want: Disowned,
			live: &Live{UID: "1", ResourceVersion: "11", Generation: 2}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Touched(tc.recorded, tc.live); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestSame(t *testing.T) {
	object := func(resourceVersion, value string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{
				"name": "a", "resourceVersion": resourceVersion, "generation": int64(1),
				"managedFields": []any{map[string]any{"time": resourceVersion}},
			},
			"data": map[string]any{"key": value},
		}}
	}
	if !Same(object("1", "x"), object("2", "x")) {
		t.Error("objects that differ in resourceVersion and managedFields alone are not the same")
	}
	if Same(object("1", "x"), object("1", "y")) {
		t.Error("objects with different data are the same")
	}
}

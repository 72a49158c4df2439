package release_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
)

// ref names a ConfigMap of the world.
func (w *world) ref(name string) client.Object {
	return cluster.Ref("v1", "ConfigMap", w.namespace, name)
}

// Manifests of a role, which bindings that bind it are dry-run only after.
const role = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]`

// binding is the manifest of a binding of the role to a kind of subject.
func binding(name, subject string) string {
	return `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: ` + name + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ` + subject + `, name: somebody, apiGroup: rbac.authorization.k8s.io}]`
}

// What waits for something that the release makes itself is checked when that is there, all of its wave before any of it.
func TestChecksDeferredObjectsBeforeTheirWave(t *testing.T) {
	w := newWorld(t)
	refused := stage{name: "one", objects: []string{role, binding("fine", "User"), binding("wrong", "Nobody"), plain("a")}}
	run, book := w.begin(t, refused)
	_, err := run.Advance(t.Context(), book)
	if err == nil || !strings.Contains(err.Error(), "wrong") || strings.Contains(err.Error(), "fine") {
		t.Errorf("got %v, want that binding wrong is refused", err)
	}
	want := []string{"finalizer", "record one: a? reader?", "apply reader", "record one: a? reader"}
	if diff := cmp.Diff(want, w.transcript()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}

	run, book = w.begin(t, stage{name: "one", objects: []string{role, binding("fine", "User"), plain("a")}})
	if got := w.advance(t, run, book); got != "Done" {
		t.Errorf("corrected: got %q", got)
	}
}

// I3: what waits is in no inventory before it is known that it may be made, because others would have to leave it alone, and
// in one before it exists.
func TestRecordsDeferredObjectsOnceTheyMayBeWritten(t *testing.T) {
	w := newWorld(t)
	run, book := w.begin(t, stage{name: "one", objects: []string{role, binding("fine", "User"), plain("a")}})
	if got := w.advance(t, run, book); got != "Done" {
		t.Errorf("got %q", got)
	}
	want := []string{
		"finalizer", "record one: a? reader?", "apply reader", "record one: a? reader? fine?", "apply fine", "apply a",
		"record one: a reader fine",
	}
	if diff := cmp.Diff(want, w.transcript()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// What waited may turn out to be as it should: then it is not written, and counts as healthy.
func TestLeavesDeferredObjectsThatAreRight(t *testing.T) {
	w := newWorld(t)
	w.released(t, stage{name: "one", objects: []string{role, binding("fine", "User")}})
	live := cluster.Ref("rbac.authorization.k8s.io/v1", "RoleBinding", w.namespace, "fine")
	noted := client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"labels": {"theirs": "yes"}}}`))
	if err := w.Client(t).Patch(t.Context(), live, noted); err != nil {
		t.Fatal(err)
	}
	run, book := w.begin(t, stage{name: "one", objects: []string{
		strings.ReplaceAll(role, "verbs: [get]", "verbs: [get, list]"), binding("fine", "User"),
	}})
	if got := w.advance(t, run, book); got != "Done" {
		t.Errorf("got %q", got)
	}
	// Until it is checked, it might have to be made anew: what the live one alone has is taken out of the inventory.
	want := []string{"finalizer", "record one: reader fine?", "apply reader", "record one: reader fine"}
	if diff := cmp.Diff(want, w.transcript()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// T-55: What cannot be changed is deleted in one pass and made anew in a later one, when its place is free; until then
// nothing that comes after is written.
func TestMakesAnewInALaterPass(t *testing.T) {
	immutable := func(value string) string { return plain("a", "immutable: true", "data: {value: "+value+"}") }
	two := stage{name: "two", objects: []string{plain("b")}}
	w := newWorld(t)
	w.released(t, stage{name: "one", objects: []string{immutable("red")}})
	before := w.live(t)["a"]
	w.patch(t, "a", `{"metadata": {"finalizers": ["e2e.metio.wtf/hold"]}}`)

	run, book := w.begin(t, stage{name: "one", recreates: true, objects: []string{immutable("blue")}}, two)
	want := "Wait: one: ConfigMap a: is being deleted, to be made anew"
	if got := w.advance(t, run, book); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if diff := cmp.Diff([]string{"finalizer", "record one: a?", "delete a"}, w.transcript()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if got := run.Recreating().Text; got != "ConfigMap "+w.namespace+"/a" {
		t.Errorf("recreating %q", got)
	}
	if got := run.Recreating().Text; got != "" {
		t.Errorf("it tells a second time that %s is made anew", got)
	}

	// Its place is still taken.
	if got := w.advance(t, run, book); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if diff := cmp.Diff([]string{"finalizer"}, w.transcript()); diff != "" {
		t.Errorf("while its place is taken it writes (-want +got):\n%s", diff)
	}

	w.patch(t, "a", `{"metadata": {"finalizers": null}}`)
	cluster.Eventually(t, func(ctx context.Context) error {
		progress, err := run.Advance(ctx, book)
		if err == nil && !progress.Done() {
			err = errors.New(w.said(progress))
		}
		return err
	})
	after := w.live(t)
	if after["a"] == before {
		t.Error("a is the object that was to be deleted")
	}
	if diff := cmp.Diff(after, w.stored(t)); diff != "" {
		t.Errorf("inventories (-live +stored):\n%s", diff)
	}
}

// What others did to an applied object of a later stage is set right whatever the stages before say, and nothing else with
// it; once the release has written something new, only in its turn.
func TestCorrectsDrift(t *testing.T) {
	cases := map[string]struct {
		begun bool
		want  []string
		// corrected is how many objects are.
		corrected int
	}{
		"nothing new is written yet":    {want: []string{"finalizer", "apply b", "force b", "record two: b"}, corrected: 1},
		"the release has begun writing": {begun: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			two := stage{name: "two", objects: []string{plain("b", "data: {key: ours}")}}
			w.released(t, stage{name: "one", objects: []string{plain("a")}}, two)
			w.patch(t, "b", `{"data": {"key": "theirs"}}`)

			w.begun = tc.begun
			two.objects = append(two.objects, plain("c"))
			run, book := w.begin(t, stage{name: "one", waits: true, objects: []string{plain("a")}}, two)
			want := "Wait: one: ConfigMap a: current of readyChecks.exprs does not hold"
			if got := w.advance(t, run, book); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if diff := cmp.Diff(tc.want, w.transcript()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if corrected := run.Corrected(); corrected.Objects != tc.corrected {
				t.Errorf("%d objects are corrected (%s), want %d", corrected.Objects, corrected.Text, tc.corrected)
			}
			if run.Begun() != tc.begun {
				t.Errorf("begun: got %t, want %t", run.Begun(), tc.begun)
			}

			w.label(t, "a", "healthy")
			if got := w.advance(t, run, book); got != "Done" {
				t.Errorf("then got %q", got)
			}
			if !run.Begun() {
				t.Error("c is written, and the release has not begun")
			}
			if diff := cmp.Diff(w.live(t), w.stored(t)); diff != "" {
				t.Errorf("inventories (-live +stored):\n%s", diff)
			}
		})
	}
}

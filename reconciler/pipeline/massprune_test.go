package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/preflight"
	"github.com/stageset/stageset/reconciler/source"
)

// named are ConfigMaps from-to, such as "1-3".
func named(from, to int) []string {
	var names []string
	for i := from; i <= to; i++ {
		names = append(names, fmt.Sprintf("c%02d", i))
	}
	return names
}

func recordOf(stage, account, hash string, names ...string) inventory.Record {
	record := inventory.Record{
		Stage: stage, Target: v1.InventoryTarget{ServiceAccountName: account}, Entries: map[inventory.Key]v1.InventoryEntry{},
	}
	for _, name := range names {
		entry := v1.InventoryEntry{Version: "v1", Kind: "ConfigMap", Namespace: "team-a", Name: name, RenderedHash: hash}
		record.Entries[inventory.EntryKey(entry)] = entry
	}
	return record
}

// kept is a record whose objects are never deleted, but for one.
func kept(record inventory.Record) inventory.Record {
	record = record.Clone()
	for number, key := range record.Keys() {
		entry := record.Entries[key]
		entry.Keep = number > 0
		record.Entries[key] = entry
	}
	return record
}

// leftBehind is a record whose objects are on their way out.
func leftBehind(record inventory.Record) inventory.Record {
	record = record.Clone()
	for _, key := range record.Keys() {
		entry := record.Entries[key]
		entry.Left = true
		record.Entries[key] = entry
	}
	return record
}

func renderedAs(stage string, names ...string) preflight.Stage {
	rendered := preflight.Stage{Name: stage}
	for _, name := range names {
		object := &unstructured.Unstructured{}
		object.SetAPIVersion("v1")
		object.SetKind("ConfigMap")
		object.SetNamespace("team-a")
		object.SetName(name)
		rendered.Objects = append(rendered.Objects, preflight.Rendered{Desired: object})
	}
	return rendered
}

// I7, T-71: an empty or mistyped path never deletes.
func TestMassPruneIsRefused(t *testing.T) {
	type release struct {
		records    []inventory.Record
		stages     []preflight.Stage
		prune      *bool
		annotation string
	}
	ten := recordOf("app", "a", "h", named(1, 10)...)
	cases := map[string]struct {
		release
		refused []string
	}{
		"first release":             {release: release{stages: []preflight.Stage{renderedAs("app", "a")}}},
		"a first one that is empty": {release: release{stages: []preflight.Stage{renderedAs("app")}}},
		"nothing where there was one object": {
			release: release{
				records: []inventory.Record{recordOf("app", "a", "h", "a")}, stages: []preflight.Stage{renderedAs("app")},
			},
			refused: []string{"app"},
		},
		"the same": {
			release: release{records: []inventory.Record{ten}, stages: []preflight.Stage{renderedAs("app", named(1, 10)...)}},
		},
		"half of ten": {
			release: release{records: []inventory.Record{ten}, stages: []preflight.Stage{renderedAs("app", named(1, 5)...)}},
		},
		"more than half of ten": {
			release: release{records: []inventory.Record{ten}, stages: []preflight.Stage{renderedAs("app", named(1, 4)...)}},
			refused: []string{"app"},
		},
		"others in their place": {
			release: release{records: []inventory.Record{ten}, stages: []preflight.Stage{renderedAs("app", named(11, 30)...)}},
			refused: []string{"app"},
		},
		"eight of nine": {
			release: release{
				records: []inventory.Record{recordOf("app", "a", "h", named(1, 9)...)},
				stages:  []preflight.Stage{renderedAs("app", named(1, 1)...)},
			},
		},
		"all moved to another stage": {
			release: release{records: []inventory.Record{ten},
				stages: []preflight.Stage{renderedAs("app"), renderedAs("db", named(1, 10)...)}},
		},
		"nine moved and one gone": {
			release: release{records: []inventory.Record{ten},
				stages: []preflight.Stage{renderedAs("app"), renderedAs("db", named(1, 9)...)}},
			refused: []string{"app"},
		},
		"a stage taken out of spec": {
			release: release{records: []inventory.Record{ten}, stages: []preflight.Stage{renderedAs("db", "a")}},
		},
		"a stage that does not prune": {
			release: release{records: []inventory.Record{ten}, stages: []preflight.Stage{renderedAs("app")}, prune: ptr.To(false)},
		},
		"under an account that has changed": {
			release: release{
				records: []inventory.Record{
					recordOf("app", "old", "h", named(1, 10)...), recordOf("app", "new", "h", named(1, 10)...),
				},
				stages: []preflight.Stage{renderedAs("app", named(1, 4)...)},
			},
			refused: []string{"app"},
		},
		// The next release must not be held for what the one before deletes.
		"left with an earlier release, and still there": {
			release: release{
				records: []inventory.Record{recordOf("app", "a", "h", "stays"), leftBehind(recordOf("app", "b", "", named(1, 20)...))},
				stages:  []preflight.Stage{renderedAs("app", "stays")},
			},
		},
		// A process that died while it applied them may have made any of them.
		"written ahead, and not confirmed": {
			release: release{
				records: []inventory.Record{recordOf("app", "a", "", named(1, 10)...)}, stages: []preflight.Stage{renderedAs("app")},
			},
			refused: []string{"app"},
		},
		"some confirmed, some written ahead, some on their way out": {
			release: release{
				records: []inventory.Record{
					recordOf("app", "a", "h", named(1, 5)...), recordOf("app", "b", "", named(6, 10)...),
					leftBehind(recordOf("app", "c", "", named(11, 30)...)),
				},
				stages: []preflight.Stage{renderedAs("app", named(1, 4)...)},
			},
			refused: []string{"app"},
		},
		"of which most are never deleted": {
			release: release{records: []inventory.Record{kept(ten)}, stages: []preflight.Stage{renderedAs("app", "c01")}},
		},
		"allowed for this revision": {
			release: release{records: []inventory.Record{ten}, stages: []preflight.Stage{renderedAs("app")}, annotation: "rev-app"},
		},
		"allowed for another revision": {
			release: release{records: []inventory.Record{ten}, stages: []preflight.Stage{renderedAs("app")}, annotation: "rev"},
			refused: []string{"app"},
		},
		"allowed for two revisions": {
			release: release{
				records: []inventory.Record{ten, recordOf("db", "a", "h", "x")}, annotation: "rev-db, rev-app",
				stages: []preflight.Stage{renderedAs("app"), renderedAs("db")},
			},
		},
		"allowed for one of two": {
			release: release{
				records: []inventory.Record{ten, recordOf("db", "a", "h", "x")}, annotation: "rev-db",
				stages: []preflight.Stage{renderedAs("app"), renderedAs("db")},
			},
			refused: []string{"app"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set := &v1.StageSet{}
			set.Annotations = map[string]string{v1.AnnotationAllowMassPrune: tc.annotation}
			var pinned Pinned
			for _, stage := range tc.stages {
				pinned.Stages = append(pinned.Stages, PinnedStage{
					Stage: v1.Stage{Name: stage.Name, Prune: tc.prune}, Pin: source.Pin{Revision: "rev-" + stage.Name},
				})
			}
			err := refuseMassPrune(set, pinned, tc.stages, tc.records)
			var refused []string
			for _, stage := range tc.stages {
				if err != nil && strings.Contains(err.Error(), "stage "+stage.Name+" ") {
					refused = append(refused, stage.Name)
				}
			}
			if diff := cmp.Diff(tc.refused, refused); diff != "" {
				t.Errorf("refused stages (-want +got):\n%s\n%v", diff, err)
			}
			if err == nil {
				return
			}
			if failed := failure.From(err); failed.Reason != v1.ReasonPruneRefused || failed.Kind != failure.Stalled {
				t.Errorf("got %s, %s", failed.Reason, failed.Kind)
			}
		})
	}
}

// Who reads the message knows what happened, and can copy the way out.
func TestMassPruneSaysHowToAllowIt(t *testing.T) {
	stages := []preflight.Stage{renderedAs("app"), renderedAs("db", "c01")}
	pinned := Pinned{Stages: []PinnedStage{
		{Stage: v1.Stage{Name: "app", Path: "./ap"}, Pin: source.Pin{Revision: "main@sha1:1"}},
		{Stage: v1.Stage{Name: "db", Path: "./db"}, Pin: source.Pin{Revision: "main@sha1:2"}},
	}}
	set := &v1.StageSet{}
	set.Annotations = map[string]string{v1.AnnotationAllowMassPrune: "main@sha1:2"}
	err := refuseMassPrune(set, pinned, stages, []inventory.Record{
		recordOf("app", "a", "h", named(2, 8)...), recordOf("db", "a", "h", named(20, 29)...),
	})
	want := `stage app renders nothing at main@sha1:1 with path "./ap", so that 7 of the 7 objects in its inventory would be ` +
		`deleted: ConfigMap team-a/c02, ConfigMap team-a/c03, ConfigMap team-a/c04, ConfigMap team-a/c05, ConfigMap team-a/c06, ` +
		`and 2 more. Nothing is applied or deleted: correct the path or the artifact; or, if the objects are to be deleted, ` +
		`set the annotation stages.metio.wtf/allow-mass-prune: "main@sha1:1,main@sha1:2" on the StageSet`
	if err == nil {
		t.Fatal("it is not refused")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
	if got := failure.From(err).Stage; got != "app" {
		t.Errorf("stage %q, want app", got)
	}
}

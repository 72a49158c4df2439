package policies_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stageset/stageset/api/v1alpha1"
)

// overriding is p, whose mutation overrides what is set.
func overriding(p v1alpha1.StageSetPolicy) v1alpha1.StageSetPolicy {
	p.Spec.Mutations[0].Override = true
	return p
}

// TestOverride: a mutation with override changes what is set, is idempotent, records what it changed, and touches only what
// is for authors to write.
func TestOverride(t *testing.T) {
	const annotation = "stages.metio.wtf/defaulted-by"
	for name, test := range map[string]struct {
		policy           v1alpha1.StageSetPolicy
		object           string
		want             map[string]any
		recorded, failed string
	}{
		"what is set": {
			policy:   overriding(sets(t, "p", "Object{spec: Object.spec{interval: '1m'}}")),
			object:   "spec: {interval: 2m}",
			want:     map[string]any{"interval": "1m"},
			recorded: "spec.interval=p",
		},
		"what is not set": {
			policy:   overriding(sets(t, "p", "Object{spec: Object.spec{interval: '1m'}}")),
			object:   "spec: {suspend: true}",
			want:     map[string]any{"interval": "1m", "suspend": true},
			recorded: "spec.interval=p",
		},
		"nothing": {
			policy: overriding(sets(t, "p", "Object{spec: Object.spec{interval: '1m'}}")),
			object: "spec: {interval: 1m}",
			want:   map[string]any{"interval": "1m"},
		},
		"what is set, without override": {
			policy: sets(t, "p", "Object{spec: Object.spec{interval: '1m'}}"),
			object: "spec: {interval: 2m}",
			want:   map[string]any{"interval": "2m"},
		},
		"by a patch": {
			policy:   overriding(patches(t, "p", "[JSONPatch{op: 'add', path: '/spec/interval', value: '1m'}]")),
			object:   "spec: {interval: 2m, suspend: true}",
			want:     map[string]any{"interval": "1m", "suspend": true},
			recorded: "spec.interval=p",
		},
		"a removal": {
			policy: overriding(patches(t, "p", "has(object.spec.interval) ? [JSONPatch{op: 'remove', path: '/spec/interval'}] : []")),
			object: "spec: {interval: 2m, suspend: true}",
			want:   map[string]any{"suspend": true},
		},
		"a removal, without override": {
			policy: patches(t, "p", "[JSONPatch{op: 'remove', path: '/spec/interval'}]"),
			object: "spec: {interval: 2m}",
			want:   map[string]any{"interval": "2m"},
		},
		"what the API server writes": {
			policy: overriding(patches(t, "p", "[JSONPatch{op: 'replace', path: '/metadata/name', value: 'other'}]")),
			object: "spec: {interval: 2m}",
			want:   map[string]any{"interval": "2m"},
			failed: "p/mutations[0]: sets metadata.name: only spec, labels and annotations can be changed",
		},
		"what StageSets do not have": {
			policy: overriding(sets(t, "p", "Object{spec: Object.spec{nothing: '1m'}}")),
			object: "spec: {interval: 2m}",
			want:   map[string]any{"interval": "2m"},
			failed: "p/mutations[0]: sets what a StageSet cannot have: .spec.nothing: field not declared in schema",
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := compile(t, test.policy)
			in := creating(stageSet(t, test.object))
			for _, round := range []string{"once", "twice"} {
				got, err := set.Default(t.Context(), in)
				message := ""
				if err != nil {
					message = err.Error()
				}
				if diff := cmp.Diff(test.want, got.Object["spec"]); diff != "" {
					t.Errorf("%s: spec (-want +got):\n%s", round, diff)
				}
				want := []string{test.recorded, test.failed}
				if diff := cmp.Diff(want, []string{got.GetAnnotations()[annotation], message}); diff != "" {
					t.Errorf("%s: record and error (-want +got):\n%s", round, diff)
				}
				in.Object = got
			}
		})
	}
}

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
		"by a patch that replaces": {
			policy:   overriding(patches(t, "p", "[JSONPatch{op: 'replace', path: '/spec/interval', value: '1m'}]")),
			object:   "spec: {interval: 2m, suspend: true}",
			want:     map[string]any{"interval": "1m", "suspend": true},
			recorded: "spec.interval=p",
		},
		"by a patch that replaces what is not so already": {
			policy: overriding(patches(t, "p", "has(object.spec.interval) && object.spec.interval != '1m' ? "+
				"[JSONPatch{op: 'replace', path: '/spec/interval', value: '1m'}] : []")),
			object:   "spec: {interval: 2m}",
			want:     map[string]any{"interval": "1m"},
			recorded: "spec.interval=p",
		},
		"by a patch that replaces true, and an empty text": {
			policy: overriding(patches(t, "p", "[JSONPatch{op: 'replace', path: '/spec/suspend', value: false}, "+
				"JSONPatch{op: 'replace', path: '/spec/serviceAccountName', value: ''}]")),
			object:   "spec: {suspend: true, serviceAccountName: mine}",
			want:     map[string]any{"suspend": false, "serviceAccountName": ""},
			recorded: "spec.serviceAccountName=p,spec.suspend=p",
		},
		"by a patch that replaces within a list": {
			policy:   overriding(patches(t, "p", "[JSONPatch{op: 'replace', path: '/spec/stages/1/path', value: './all'}]")),
			object:   "spec: {stages: [{name: a, path: ./a}, {name: b, path: ./b}]}",
			recorded: "spec.stages[b].path=p",
			want: map[string]any{"stages": []any{
				map[string]any{"name": "a", "path": "./a"}, map[string]any{"name": "b", "path": "./all"},
			}},
		},
		"by a patch that replaces a list": {
			policy: overriding(patches(t, "p", "[JSONPatch{op: 'replace', path: '/spec/dependsOn', value: "+
				"[{'name': 'x', 'namespace': ''}]}]")),
			object:   "spec: {dependsOn: [{name: z, namespace: ''}]}",
			want:     map[string]any{"dependsOn": []any{map[string]any{"name": "x", "namespace": ""}}},
			recorded: "spec.dependsOn[x]=p",
		},
		"by a configuration that reads what it replaces": {
			policy:   overriding(sets(t, "p", "Object{spec: Object.spec{interval: object.spec.interval == '1m' ? '1m' : '1m0s'}}")),
			object:   "spec: {interval: 2m}",
			want:     map[string]any{"interval": "1m0s"},
			recorded: "spec.interval=p",
		},
		"by a patch, beside what is filled in": {
			policy: policy(t, "p", `
mutations:
- {patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{spec: Object.spec{suspend: true}}"}}
- patchType: JSONPatch
  override: true
  jsonPatch: {expression: "[JSONPatch{op: 'replace', path: '/spec/interval', value: '1m'}]"}`),
			object:   "spec: {interval: 2m}",
			want:     map[string]any{"interval": "1m", "suspend": true},
			recorded: "spec.interval=p,spec.suspend=p",
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

// TestOverrideOfItself: who made a value of the one that it replaced cannot be told from the result: called again, the value
// stays, and the record does not.
func TestOverrideOfItself(t *testing.T) {
	set := compile(t, overriding(sets(t, "p", "Object{spec: Object.spec{stages: object.spec.stages.map(s, Object.spec.stages{"+
		"name: s.name, path: s.path.startsWith('./') ? s.path : './' + s.path})}}")))
	in := creating(stageSet(t, "spec: {stages: [{name: web, path: web}]}"))
	for _, recorded := range []string{"spec.stages[web].path=p", ""} {
		got, err := set.Default(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		want := annotated(stageSet(t, "spec: {stages: [{name: web, path: ./web}]}"), recorded)
		if diff := cmp.Diff(want.Object, got.Object); diff != "" {
			t.Errorf("defaulted (-want +got):\n%s", diff)
		}
		in.Object = got
	}
}

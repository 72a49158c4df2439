package admission_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const (
	// limits has a rule for each part of a StageSet that can be changed.
	limits = `
validations:
- name: interval
  fieldPath: spec.interval
  expression: object.spec.?interval.orValue('1h') == '1h'
  message: once an hour
- name: alone
  fieldPath: spec.dependsOn
  expression: '!has(object.spec.dependsOn)'
  message: depend on nothing
- name: team
  fieldPath: metadata.labels.team
  expression: object.metadata.?labels.?team.orValue('a') in ['a', 'b']
  message: only teams a and b
- name: note
  fieldPath: metadata.annotations
  expression: "!('forbidden' in object.metadata.?annotations.orValue({}))"
  message: not that note`
	// fills fills in a field of the spec, and has its way about a label.
	fills = `
mutations:
- patchType: ApplyConfiguration
  applyConfiguration: {expression: "Object{spec: Object.spec{retryInterval: '1m'}}"}
- patchType: ApplyConfiguration
  override: true
  applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'cost': 'tenant'}}}"}`

	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	refusedLate = "stageset-admission/being-deleted"
)

// attack is an update of a StageSet that was stored before there was a policy.
type attack struct {
	stored  string // metadata and spec, besides what every one has
	deleted bool   // whether it is being deleted, and only a finalizer holds it
	patch   string // a merge patch, in YAML
	status  bool   // whether it is one of the status
	denied  string // part of the refusal; empty if it is allowed
	want    string // some of the attacked fields afterwards, as field=value; without a value if unset
}

// attacked are where the fields are that the attacks are about.
var attacked = map[string][]string{
	"interval": {"spec", "interval"},
	"retry":    {"spec", "retryInterval"},
	"policy":   {"spec", "deletionPolicy"},
	"team":     {"metadata", "labels", "team"},
	"tier":     {"metadata", "labels", "tier"},
	"cost":     {"metadata", "labels", "cost"},
	"by":       {"metadata", "annotations", "stages.metio.wtf/defaulted-by"},
	"at":       {"metadata", "annotations", "reconcile.fluxcd.io/requestedAt"},
	"stage":    {"status", "currentStage"},
}

// annotations is a part of a patch. What is not the name of a field is one of an annotation.
func annotations(pairs ...string) string {
	var all []string
	for n := 0; n < len(pairs); n += 2 {
		key := pairs[n]
		if path := attacked[key]; path != nil {
			key = path[2]
		}
		all = append(all, key+": "+pairs[n+1])
	}
	return "annotations: {" + strings.Join(all, ", ") + "}"
}

// attacks are what somebody would try who may update StageSets and wants something past the policies: under cover of what is
// always allowed, by parts that no rule seems to be about, and on objects that the policies have nothing to say about any
// more. FILLS is the policy that fills in.
var attacks = map[string]attack{
	"suspend":                     {patch: "spec: {suspend: true}", want: "retry="},
	"suspend, with a change":      {patch: "spec: {suspend: true, interval: 2h}", denied: "limits/interval"},
	"suspend, with a dependency":  {patch: "spec: {suspend: true, dependsOn: [{name: x}]}", denied: "limits/alone"},
	"suspend, with an empty list": {patch: "spec: {suspend: true, dependsOn: []}", denied: "limits/alone"},
	"suspend, with a label": {
		patch: "{spec: {suspend: true}, metadata: {labels: {team: x}}}", denied: "limits/team",
	},
	"suspend, with a note": {
		patch: "{spec: {suspend: true}, metadata: {" + annotations("forbidden", "x") + "}}", denied: "limits/note",
	},
	"suspend, with a forged name": {
		patch: "{spec: {suspend: true}, metadata: {" + annotations("by", "spec.suspend=x") + "}}",
		want:  "by=metadata.labels.cost=FILLS,spec.retryInterval=FILLS",
	},
	"suspend what is wrong": {stored: "spec: {interval: 2h}", patch: "spec: {suspend: true}", want: "interval=2h"},
	"resume what is wrong": {
		stored: "spec: {interval: 2h, suspend: true}", patch: "spec: {suspend: false}", denied: "limits/interval",
	},
	"take suspend out": {
		stored: "spec: {interval: 2h, suspend: true}", patch: "spec: {suspend: null}", denied: "limits/interval",
	},
	"change while it is suspended": {
		stored: "spec: {suspend: true}", patch: "spec: {suspend: true, interval: 2h}", denied: "limits/interval",
	},

	"orphan what nobody deletes": {
		stored: "spec: {interval: 2h}", patch: "spec: {deletionPolicy: Orphan}", denied: "limits/interval",
	},
	"orphan, with a forged deletion": {
		stored: "spec: {interval: 2h}", denied: "deletionTimestamp",
		patch: "{spec: {deletionPolicy: Orphan}, metadata: {deletionTimestamp: '2026-01-01T00:00:00Z'}}",
	},
	"orphan what is deleted": {deleted: true, patch: "spec: {deletionPolicy: Orphan}", want: "policy=Orphan retry="},
	"orphan what is deleted, with a change": {
		deleted: true, patch: "spec: {deletionPolicy: Orphan, interval: 1h}", denied: refusedLate,
	},
	"no orphan after all": {
		deleted: true, stored: "spec: {deletionPolicy: Orphan}", patch: "spec: {deletionPolicy: Delete}", denied: refusedLate,
	},
	"resume what is deleted": {
		deleted: true, stored: "spec: {suspend: true}", patch: "spec: {suspend: false}", denied: refusedLate,
	},
	"change what is deleted": {deleted: true, patch: "spec: {interval: 1h}", denied: refusedLate},
	"label what is deleted":  {deleted: true, patch: "metadata: {labels: {team: x}}", want: "team=x"},

	"reconcile": {stored: "spec: {interval: 2h}", patch: "metadata: {" + annotations("at", "x") + "}", want: "at=x retry= by="},
	"reconcile, with a change": {
		patch: "{metadata: {" + annotations("at", "x") + "}, spec: {interval: 2h}}", denied: "limits/interval",
	},
	"reconcile, with a label": {
		patch: "metadata: {" + annotations("at", "x") + ", labels: {team: x}}", denied: "limits/team",
	},
	"reconcile, with a note": {patch: "metadata: {" + annotations("at", "x", "forbidden", "x") + "}", denied: "limits/note"},
	"reconcile, with a forged name": {
		patch: "metadata: {" + annotations("at", "x", "by", "spec.stages=x") + "}", want: "at=x by=metadata.labels.cost=FILLS",
	},
	"apply, with a label": {
		patch: "metadata: {" + annotations(lastApplied, "x") + ", labels: {team: x}}", denied: "limits/team",
	},

	"a label": {patch: "metadata: {labels: {team: x}}", denied: "limits/team"},
	"a label that was wrong": {
		stored: "metadata: {labels: {team: x}}", patch: "metadata: {labels: {team: z}}", denied: "limits/team",
	},
	"a label beside what is wrong": {
		stored: "metadata: {labels: {team: x}}", patch: "metadata: {labels: {tier: z}}", want: "team=x tier=z",
	},
	"a label over a change": {
		stored: "{spec: {interval: 2h}, metadata: {labels: {team: a}}}", patch: "metadata: {labels: {team: b}}",
		want: "team=b interval=2h retry=",
	},
	"a label that a policy sets": {patch: "metadata: {labels: {cost: nobody}}", want: "cost=tenant retry="},
	"a label that a policy has set, off": {
		stored: "metadata: {labels: {cost: tenant}}", patch: "metadata: {labels: {cost: null}}", want: "cost=tenant",
	},
	"a note": {patch: "metadata: {" + annotations("forbidden", "x") + "}", denied: "limits/note"},
	"a note, with an owner": {
		patch: "metadata: {" + annotations("forbidden", "x") +
			", ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: x, uid: x}]}",
		denied: "limits/note",
	},
	"a forged name": {
		stored: "spec: {retryInterval: 3m}", patch: "metadata: {" + annotations("by", "spec.retryInterval=FILLS") + "}",
		want: "retry=3m by=metadata.labels.cost=FILLS",
	},
	"a name taken off": {
		stored: "{spec: {retryInterval: 9m}, metadata: {" + annotations("by", "spec.retryInterval=earlier") + "}}",
		patch:  "metadata: {" + annotations("by", "null") + "}",
		want:   "retry=9m by=metadata.labels.cost=FILLS,spec.retryInterval=earlier",
	},

	"a finalizer, with a change": {
		patch: "{metadata: {finalizers: [example.com/hold, a/b]}, spec: {interval: 2h}}", denied: "limits/interval",
	},
	"a finalizer off, with a change": {
		patch: "{metadata: {finalizers: null}, spec: {interval: 2h}}", denied: "limits/interval",
	},
	"the last finalizer off, with a change": {
		deleted: true, patch: "{metadata: {finalizers: null}, spec: {interval: 1h}}", denied: refusedLate,
	},
	"a finalizer on what is deleted": {
		deleted: true, patch: "metadata: {finalizers: [example.com/hold, a/b]}", denied: "no new finalizers",
	},
	"no deletion after all": {
		deleted: true, patch: "{metadata: {deletionTimestamp: null}, spec: {interval: 1h}}", denied: refusedLate,
	},

	"a change by the status": {
		status: true, patch: "{spec: {interval: 2h}, metadata: {labels: {team: x}}, status: {currentStage: x}}",
		want: "interval= team= stage=x",
	},
}

// Nothing gets past the policies under cover of an update that is allowed whatever they say.
func TestNothingSlipsThroughAllowedUpdates(t *testing.T) {
	i := install(t)
	names := slices.Sorted(maps.Keys(attacks))
	stored := map[string]*unstructured.Unstructured{}
	for n, name := range names {
		stored[name] = i.victim(t, fmt.Sprintf("victim-%d", n), attacks[name])
	}
	i.installWebhooks(t)
	i.start(t)
	filling := i.policy(t, "fills", fills)
	i.inForce(t, filling, i.policy(t, "limits", limits))
	named := strings.NewReplacer("FILLS", filling.GetName(), "limits/", i.tenant+"-limits/")
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			test, before := attacks[name], stored[name]
			patch := client.RawPatch(types.MergePatchType, []byte(toJSON(t, named.Replace(test.patch))))
			var err error
			if ref := i.stageSet(t, before.GetName(), ""); test.status {
				err = i.client.Status().Patch(t.Context(), ref, patch)
			} else {
				err = i.client.Patch(t.Context(), ref, patch)
			}
			denied := named.Replace(test.denied)
			if (err == nil) != (denied == "") || err != nil && !strings.Contains(err.Error(), denied) {
				t.Fatalf("got %v, want a refusal with %q", err, denied)
			}
			live := i.WaitFor(t, before)
			if err != nil && live.GetResourceVersion() != before.GetResourceVersion() {
				t.Error("it has changed although it was refused")
			}
			for _, wanted := range strings.Fields(named.Replace(test.want)) {
				field, want, _ := strings.Cut(wanted, "=")
				if got, _, err := unstructured.NestedString(live.Object, attacked[field]...); err != nil || got != want {
					t.Errorf("%s is %q (%v), want %q", field, got, err, want)
				}
			}
		})
	}
}

// victim stores what an attack is made on, until the end of the test.
func (i *installation) victim(t *testing.T, name string, of attack) *unstructured.Unstructured {
	t.Helper()
	object := i.stageSet(t, name, validSpec)
	var more unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(of.stored), &more.Object); err != nil {
		t.Fatal(err)
	}
	spec, _, _ := unstructured.NestedMap(more.Object, "spec")
	maps.Copy(object.Object["spec"].(map[string]any), spec)
	object.SetLabels(more.GetLabels())
	object.SetAnnotations(more.GetAnnotations())
	object.SetFinalizers([]string{"example.com/hold"})
	i.mustCreate(t, object)
	t.Cleanup(func() {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`))
		if err := client.IgnoreNotFound(i.client.Patch(context.Background(), object, patch)); err != nil {
			t.Errorf("letting go of %s: %v", name, err)
		}
	})
	if of.deleted {
		if err := i.client.Delete(t.Context(), object.DeepCopy()); err != nil {
			t.Fatal(err)
		}
	}
	return i.WaitFor(t, object)
}

func toJSON(t *testing.T, text string) string {
	t.Helper()
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

package preflight

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/drift"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/ownership"
	"github.com/stageset/stageset/reconciler/tenant"
)

// limited is a target whose account lacks some verbs of some resources: "create configmaps".
type limited struct {
	Target
	lacks []string
	// exists are the names of objects that exist.
	exists []string
	// asked counts questions about permissions, and fresh those that may not be answered from memory.
	asked, fresh int
}

func (l *limited) Resource(_ context.Context, gvk schema.GroupVersionKind) (string, error) {
	if gvk.Group == "example.com" {
		return "", &meta.NoKindMatchError{GroupKind: gvk.GroupKind()}
	}
	return strings.ToLower(gvk.Kind) + "s", nil
}

func (l *limited) Missing(_ context.Context, needed tenant.Permissions, fresh bool) (tenant.Permissions, error) {
	l.asked++
	if fresh {
		l.fresh++
	}
	return slices.DeleteFunc(slices.Clone(needed), func(p tenant.Permission) bool {
		return !slices.Contains(l.lacks, p.Verb+" "+p.Resource)
	}), nil
}

func (l *limited) Get(_ context.Context, gvk schema.GroupVersionKind, _, name string) (*unstructured.Unstructured, error) {
	if slices.Contains(l.exists, name) {
		return &unstructured.Unstructured{}, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: gvk.Kind}, name)
}

const (
	crdOfThings  = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.example.com}\nspec: {group: example.com, names: {kind: Thing, plural: things}}"
	ownRole      = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r, namespace: team-a}"
	ownRoleGiven = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: own, namespace: team-a}\nroleRef: {kind: Role, name: r}\nsubjects: [{kind: ServiceAccount, name: deployer, namespace: team-a}]"
	added        = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: added, labels: {rbac.authorization.k8s.io/aggregate-to-edit: 'true'}}"
	ownNamespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a}"
	keptMap      = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept, namespace: team-a, annotations: {stages.metio.wtf/prune: disabled}}"
)

// T-12: what an account lacks is known before anything is written, of all stages, but for what the release gives it first.
func TestLacks(t *testing.T) {
	cases := map[string]struct {
		lacks, exists, settled []string
		stages                 [][]string
		keeps                  bool
		cluster                string // the local one if it is empty
		// want are lines of what is lacked, and waits the names of objects that have to be asked about again.
		want, waits []string
	}{
		"nothing":           {stages: [][]string{{plain}}},
		"nothing is needed": {lacks: []string{"delete pods"}, stages: [][]string{{plain}}},
		"in all stages": {
			lacks: []string{"create configmaps", "patch namespaces"}, stages: [][]string{{plain, inShop}, {namespace}},
			want: []string{
				"a: create configmaps in shop (a)", "a: create configmaps in team-a (plain)", "b: patch namespaces (shop)",
			},
		},
		"also of what is applied": {
			lacks: []string{"delete configmaps"}, settled: []string{plain}, stages: [][]string{{plain}, {namespace}},
			want: []string{"a: delete configmaps in team-a (plain)"},
		},
		"nothing to write": {lacks: []string{"delete configmaps"}, settled: []string{plain}, stages: [][]string{{plain}}},
		"create of what is applied": {
			lacks: []string{"create configmaps"}, settled: []string{plain}, stages: [][]string{{plain}, {namespace}},
		},
		"create of what exists": {lacks: []string{"create configmaps"}, exists: []string{"plain"}, stages: [][]string{{plain}}},
		"delete in a stage that keeps": {
			lacks: []string{"delete configmaps"}, keeps: true, stages: [][]string{{plain}},
		},
		"delete of what is never deleted": {
			lacks: []string{"delete configmaps", "delete namespaces"}, stages: [][]string{{keptMap, ownNamespace}},
		},
		"delete of the namespace of the same name elsewhere": {
			cluster: "5f1c", lacks: []string{"delete namespaces"}, stages: [][]string{{ownNamespace}},
			want: []string{"a: delete namespaces (team-a)"},
		},
		"of a kind that the release defines": {
			lacks: []string{"create things"}, stages: [][]string{{crdOfThings, thing}}, want: []string{"a: create things.example.com in team-a (t)"},
		},
		"of a kind that nobody knows": {lacks: []string{"create things"}, stages: [][]string{{thing}}},
		"given before": {
			lacks: []string{"create configmaps"}, stages: [][]string{{ownBinding}, {plain}}, waits: []string{"plain"},
		},
		"given to a group before, in the same stage": {
			lacks: []string{"create configmaps"}, stages: [][]string{{plain, toGroup}}, waits: []string{"plain"},
		},
		// A binding in a namespace gives nothing elsewhere: what is lacked there is known before anything is written.
		"given in another namespace": {
			lacks: []string{"create configmaps", "patch namespaces"}, stages: [][]string{{ownBinding}, {inShop, namespace}},
			want: []string{"b: patch namespaces (shop)", "b: create configmaps in shop (a)"},
		},
		"given to its own Namespace": {
			lacks: []string{"patch namespaces"}, stages: [][]string{{ownBinding}, {ownNamespace}}, waits: []string{"team-a"},
		},
		"given everywhere": {
			lacks: []string{"create configmaps"}, stages: [][]string{{toGroup}, {inShop}}, waits: []string{"a"},
		},
		"given after": {
			lacks: []string{"create configmaps"}, stages: [][]string{{plain}, {ownBinding}},
			want: []string{"a: create configmaps in team-a (plain)"},
		},
		"given to somebody else": {
			lacks: []string{"create configmaps"}, stages: [][]string{{binding}, {plain}},
			want: []string{"b: create configmaps in team-a (plain)"},
		},
		"given already": {
			lacks: []string{"create configmaps"}, settled: []string{ownBinding}, stages: [][]string{{ownBinding}, {plain}},
			want: []string{"b: create configmaps in team-a (plain)"},
		},
		"a role that changes": {
			lacks: []string{"create configmaps"}, settled: []string{ownRoleGiven}, stages: [][]string{{ownRole, ownRoleGiven}, {plain}},
			waits: []string{"plain"},
		},
		"a role that is added to others": {
			lacks: []string{"create configmaps"}, stages: [][]string{{added}, {plain}}, waits: []string{"plain"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			target := &limited{lacks: tc.lacks, exists: tc.exists}
			stages := release(t, tc.settled, tc.stages...)
			for i := range stages {
				stages[i].target, stages[i].number, stages[i].prunes = target, i, !tc.keeps
			}
			order(stages)
			deferObjects(stages)
			in := Input{Applier: ownership.Applier{
				Owner: ownership.Owner{Namespace: "team-a", Name: "app"}, Cluster: cmp.Or(tc.cluster, v1.ClusterLocal),
			}}
			found, err := lacks(t.Context(), in, stages)
			if err != nil {
				t.Fatal(err)
			}
			var got, waits []string
			for _, lack := range found {
				for _, line := range lack.Lines() {
					got = append(got, lack.stage+": "+line)
				}
			}
			for _, stage := range stages {
				for _, object := range stage.objects {
					if len(object.lacks) > 0 && object.gift != nil {
						waits = append(waits, object.key.Name)
						if !object.Deferred() {
							t.Errorf("%s is not deferred", object.key)
						}
					}
				}
			}
			if diff := gocmp.Diff(tc.want, got); diff != "" {
				t.Errorf("lacks (-want +got):\n%s", diff)
			}
			if diff := gocmp.Diff(tc.waits, waits); diff != "" {
				t.Errorf("waiting (-want +got):\n%s", diff)
			}
			if name == "nothing to write" && target.asked > 0 {
				t.Errorf("%d questions, although there is nothing to write", target.asked)
			}
		})
	}
}

// What a stage waits for it has to be allowed to read, which is known before anything is written, too, but for what the
// release may give it until then.
func TestLacksOfReadyChecks(t *testing.T) {
	web := ReadyCheck{Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}}
	web.Key = inventory.Key{Kind: "Pod", Namespace: "team-a", Name: "web"}
	unknown := ReadyCheck{Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}}
	unknown.Key = inventory.Key{Group: "example.com", Kind: "Thing", Namespace: "team-a", Name: "t"}
	applied := ReadyCheck{Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}}
	applied.Key = inventory.Key{Kind: "ConfigMap", Namespace: "team-a", Name: "plain"}
	cases := map[string]struct {
		lacks, objects []string
		want           []string
	}{
		"what it may not read":     {lacks: []string{"get pods"}, objects: []string{plain}, want: []string{"get pods in team-a (web)"}},
		"what it may not list":     {lacks: []string{"list pods"}, objects: []string{plain}},
		"what it applies itself":   {lacks: []string{"get configmaps"}, objects: []string{plain}, want: []string{"get configmaps in team-a (plain)"}},
		"what it is given first":   {lacks: []string{"get pods"}, objects: []string{plain, ownBinding}},
		"when nothing is written":  {lacks: []string{"get pods"}},
		"a kind that nobody knows": {lacks: []string{"get things"}, objects: []string{plain}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			stages := release(t, nil, tc.objects)
			stages[0].target, stages[0].checks = &limited{lacks: tc.lacks}, []ReadyCheck{web, unknown, applied}
			order(stages)
			deferObjects(stages)
			found, err := lacks(t.Context(), Input{}, stages)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, lack := range found {
				got = append(got, lack.Lines()...)
			}
			if diff := gocmp.Diff(tc.want, got); diff != "" {
				t.Errorf("lacks (-want +got):\n%s", diff)
			}
		})
	}
}

// What leaves the release is deleted as the account that applied it.
func TestLacksOfWhatLeaves(t *testing.T) {
	target := &limited{lacks: []string{"delete configmaps"}}
	entry := v1.InventoryEntry{Version: "v1", Kind: "ConfigMap", Namespace: "team-a", Name: "old"}
	gone := v1.InventoryEntry{Group: "example.com", Version: "v1", Kind: "Thing", Namespace: "team-a", Name: "t"}
	found, err := lacks(t.Context(), Input{Leaving: []Leaving{
		{Stage: "old", Target: target, Entries: []v1.InventoryEntry{entry, gone}},
	}}, nil)
	if err != nil || len(found) != 1 {
		t.Fatalf("got %v, %v, want one lack", found, err)
	}
	if diff := gocmp.Diff([]string{"delete configmaps in team-a (old)"}, found[0].Lines()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// What was lacked is asked again when the release may have given it, and not before; and not from memory.
func TestPermit(t *testing.T) {
	target := &limited{lacks: []string{"create configmaps"}}
	stages := release(t, nil, []string{plain, ownBinding}, []string{keptMap})
	for i := range stages {
		stages[i].target, stages[i].number = target, i
	}
	order(stages)
	deferObjects(stages)
	if _, err := lacks(t.Context(), Input{}, stages); err != nil {
		t.Fatal(err)
	}
	first, last := stages[0].objects[0], stages[0].objects[1] // the binding, and what waits for it
	if err := stages[0].Permit(t.Context(), first.Wave()); err != nil || target.fresh > 0 {
		t.Errorf("before the binding: %v, %d questions, want none", err, target.fresh)
	}
	for stage, wave := range map[int]int{0: last.Wave(), 1: stages[1].objects[0].Wave()} {
		err := stages[stage].Permit(t.Context(), wave)
		failed := failure.From(err)
		if err == nil || failed.Reason != v1.ReasonPermissionsMissing || failed.Kind != failure.Transient {
			t.Fatalf("stage %d: got %v, want that a permission is missing", stage, err)
		}
	}
	target.lacks, target.fresh = nil, 0
	for range 2 {
		if err := stages[1].Permit(t.Context(), 0); err != nil {
			t.Error(err)
		}
	}
	if target.fresh != 1 {
		t.Errorf("%d questions, want one: what is known does not have to be asked again", target.fresh)
	}
}

// A refusal by the API server that is about permissions says the same as the preflight, and one that is not, what it is.
func TestForbiddenIsToldApart(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "plain", nil)
	at := func(lacks ...string) []Problem {
		stages := release(t, nil, []string{plain})
		stages[0].target = &limited{lacks: lacks}
		stages[0].objects[0].state, stages[0].objects[0].live = drift.Changed, &drift.Live{}
		return []Problem{stages[0].Problem(stages[0].objects[0], forbidden)}
	}
	cases := map[string]struct {
		problems     []Problem
		reason, want string
	}{
		"a permission": {
			problems: at("patch configmaps"), reason: v1.ReasonPermissionsMissing, want: "stage a: patch configmaps in team-a (plain); roles have",
		},
		"not one that is needed": {
			problems: at("create configmaps"), reason: v1.ReasonApplyFailed, want: "has the permission: what refuses is a quota",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			failed := failure.From(Refused(t.Context(), tc.problems))
			if failed.Reason != tc.reason || !strings.Contains(failed.Error(), tc.want) {
				t.Errorf("got %s: %v, want %s: %s", failed.Reason, failed, tc.reason, tc.want)
			}
		})
	}
}

// A message has twenty lines, and then a count.
func TestManyLacks(t *testing.T) {
	var lacking []lack
	for range 25 {
		lacking = append(lacking, lack{
			stage: "app", account: tenant.Account{Namespace: "team-a", Name: "deployer"},
			Permissions: permissionsFor(inventory.Key{Namespace: "team-a", Name: "web"}, "pods", "create"),
		})
	}
	text := describe(lacking, nil).Error()
	if got := strings.Count(text, "create pods in team-a (web)"); got != maxProblems {
		t.Errorf("%d lines, want %d", got, maxProblems)
	}
	want := `; and 5 more; roles have to allow it to system:serviceaccount:team-a:deployer ("stagesetctl rbac" prints them)`
	if !strings.HasSuffix(text, want) {
		t.Errorf("the end is not %q:\n%s", want, text)
	}
}

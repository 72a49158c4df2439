package preflight

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/drift"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/tenant"
)

const (
	namespace  = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}"
	inShop     = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}"
	crd        = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.example.com}\nspec: {group: example.com, names: {kind: Thing}}"
	thing      = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: t, namespace: team-a}"
	role       = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r, namespace: team-a}"
	binding    = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: b, namespace: team-a}\nroleRef: {kind: Role, name: r}\nsubjects: [{kind: ServiceAccount, name: other, namespace: team-a}]"
	ownBinding = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: own, namespace: team-a}\nroleRef: {kind: ClusterRole, name: edit}\nsubjects: [{kind: ServiceAccount, name: deployer, namespace: team-a}]"
	toGroup    = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: g}\nroleRef: {kind: ClusterRole, name: edit}\nsubjects: [{kind: Group, name: 'system:serviceaccounts:team-a'}]"
	grab       = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: grab}\nroleRef: {kind: ClusterRole, name: cluster-admin}\nsubjects: [{kind: ServiceAccount, name: deployer, namespace: team-a}]"
	account    = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: app, namespace: team-a}"
	pod        = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: team-a}\nspec: {serviceAccountName: app}"
	priority   = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}"
	runtime    = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: jail}"
	urgent     = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: team-a}\nspec: {priorityClassName: high}"
	jailed     = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: team-a}\nspec: {runtimeClassName: jail}"
	plain      = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plain, namespace: team-a}"
)

func object(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &obj.Object); err != nil {
		t.Fatal(err)
	}
	return obj
}

// release is a release of one account, with what a snapshot says is live already and unchanged.
func release(t *testing.T, settled []string, stages ...[]string) []ClearedStage {
	t.Helper()
	recorded := map[inventory.Key]v1.InventoryEntry{}
	snapshot := drift.Snapshot{}
	for _, manifest := range settled {
		obj := object(t, manifest)
		recorded[inventory.KeyOf(obj)] = v1.InventoryEntry{UID: "1", RenderedHash: manifest, ResourceVersion: "7"}
		snapshot[inventory.KeyOf(obj)] = drift.Live{UID: "1", ResourceVersion: "7"}
	}
	var cleared []ClearedStage
	for number, manifests := range stages {
		stage := Stage{Name: string(rune('a' + number)), Account: tenant.Account{Namespace: "team-a", Name: "deployer"}}
		for _, manifest := range manifests {
			stage.Objects = append(stage.Objects, Rendered{Desired: object(t, manifest), Hash: manifest})
		}
		next := ClearedStage{name: stage.Name, account: stage.Account}
		next.classify(Input{Recorded: recorded}, stage.Objects, snapshot)
		cleared = append(cleared, next)
	}
	return cleared
}

func TestDeferral(t *testing.T) {
	cases := map[string]struct {
		settled []string
		stages  [][]string
		// want maps the names of deferred objects to what they wait for.
		want map[string]string
	}{
		"nothing refers to anything": {stages: [][]string{{plain}, {inShop}}},
		// T-63: what is rendered into a namespace of the same release.
		"namespace of the same stage":   {stages: [][]string{{inShop, namespace}}, want: map[string]string{"a": "Namespace shop"}},
		"namespace of an earlier stage": {stages: [][]string{{namespace}, {inShop}}, want: map[string]string{"a": "Namespace shop"}},
		"namespace of a later stage":    {stages: [][]string{{inShop}, {namespace}}},
		"namespace that is there":       {settled: []string{namespace}, stages: [][]string{{inShop, namespace}}},
		// T-60
		"custom resource before its CRD in one stage": {stages: [][]string{{thing, crd}},
			want: map[string]string{"t": "the CustomResourceDefinition of Thing.example.com"}},
		"CRD that is there": {settled: []string{crd}, stages: [][]string{{thing, crd}}},
		// T-12
		"role and binding": {stages: [][]string{{binding, role}},
			want: map[string]string{"b": "Role.rbac.authorization.k8s.io team-a/r"}},
		"account of a Pod": {stages: [][]string{{pod, account}}, want: map[string]string{"p": "ServiceAccount team-a/app"}},
		"priority of a Pod": {stages: [][]string{{urgent, priority}},
			want: map[string]string{"p": "PriorityClass.scheduling.k8s.io high"}},
		"runtime of a Pod": {stages: [][]string{{jailed}, {runtime}}}, // a later stage
		"runtime of a Pod, earlier": {stages: [][]string{{runtime}, {jailed}},
			want: map[string]string{"p": "RuntimeClass.node.k8s.io jail"}},
		"binding of the stage's account": {stages: [][]string{{ownBinding}, {plain}},
			want: map[string]string{"plain": "RoleBinding.rbac.authorization.k8s.io team-a/own"}},
		"binding of the stage's account elsewhere": {stages: [][]string{{ownBinding}, {inShop}}},
		"binding of a group of the account": {stages: [][]string{{toGroup}, {plain}},
			want: map[string]string{"plain": "ClusterRoleBinding.rbac.authorization.k8s.io g"}},
		// A binding to a role that the release does not render is checked before anything is written.
		"grab for cluster-admin": {stages: [][]string{{grab}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			stages := release(t, tc.settled, tc.stages...)
			order(stages)
			deferObjects(stages)
			got := map[string]string{}
			for _, stage := range stages {
				for _, object := range stage.objects {
					if object.Deferred() {
						got[object.key.Name] = object.waitsFor
					}
				}
			}
			if tc.want == nil {
				tc.want = map[string]string{}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("deferred (-want +got):\n%s", diff)
			}
		})
	}
}

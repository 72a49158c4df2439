package build

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// cluster knows a few built-in kinds.
func cluster(kind schema.GroupKind) (namespaced, known bool) {
	switch kind.Kind {
	case "ConfigMap", "ServiceAccount", "RoleBinding", "Ingress":
		return true, true
	case "Namespace", "ClusterRoleBinding", "CustomResourceDefinition":
		return false, true
	default:
		return false, false
	}
}

const mixed = `
apiVersion: v1
kind: ConfigMap
metadata: {name: plain}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: own, namespace: other}
---
apiVersion: v1
kind: Namespace
metadata: {name: ns, namespace: nonsense}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: app, namespace: other}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: rb}
subjects:
- {kind: ServiceAccount, name: app, namespace: other}
- {kind: ServiceAccount, name: app, namespace: third}
- {kind: ServiceAccount, name: bare}
- {kind: User, name: jane}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: crb, namespace: nonsense}
subjects: [{kind: ServiceAccount, name: app, namespace: other}]
`

func TestPlace(t *testing.T) {
	subject := func(name, namespace string) map[string]any {
		s := map[string]any{"kind": "ServiceAccount", "name": name}
		if namespace != "" {
			s["namespace"] = namespace
		}
		return s
	}
	jane := map[string]any{"kind": "User", "name": "jane"}
	cases := map[string]struct {
		placement Placement
		names     []string
		rb, crb   []any
	}{
		"default": {
			placement: Placement{DefaultNamespace: "team-a"},
			names:     []string{"ConfigMap team-a/plain", "ConfigMap other/own", "Namespace ns", "ServiceAccount other/app", "RoleBinding team-a/rb", "ClusterRoleBinding crb"},
			rb:        []any{subject("app", "other"), subject("app", "third"), subject("bare", ""), jane},
			crb:       []any{subject("app", "other")},
		},
		"target": {
			placement: Placement{DefaultNamespace: "team-a", TargetNamespace: "prod"},
			names:     []string{"ConfigMap prod/plain", "ConfigMap prod/own", "Namespace ns", "ServiceAccount prod/app", "RoleBinding prod/rb", "ClusterRoleBinding crb"},
			rb:        []any{subject("app", "prod"), subject("app", "third"), subject("bare", "prod"), jane},
			crb:       []any{subject("app", "prod")},
		},
	}
	m := built(t, map[string]string{"a.yaml": mixed}, Options{})
	before := texts(t, m)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			placed, err := Place(m, cluster, c.placement)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			subjects := map[string]any{}
			for _, object := range placed.Objects() {
				names = append(names, object.String())
				subjects[object.GetName()] = object.Object["subjects"]
			}
			if diff := cmp.Diff(c.names, names); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]any{c.rb, c.crb}, []any{subjects["rb"], subjects["crb"]}); diff != "" {
				t.Errorf("subjects (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, texts(t, m)); diff != "" {
				t.Errorf("the original changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestPlaceTwoAccountsOfOneName(t *testing.T) {
	m := built(t, map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: x}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: y}\n"}, Options{})
	placed, err := Place(m, cluster, Placement{TargetNamespace: "prod"})
	if err != nil {
		t.Fatal(err)
	}
	err = Duplicates([]StageManifests{{"app", placed}})
	want := `ConfigMap prod/a is rendered by stage "app" (a.yaml:1) and by stage "app" (a.yaml:5)`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec: {group: example.com, scope: Namespaced, names: {kind: Widget, plural: widgets}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: planets.example.com}
spec: {group: example.com, scope: Cluster, names: {kind: Planet, plural: planets}}
`

func TestPlaceKnowsRenderedKinds(t *testing.T) {
	crds := built(t, map[string]string{"a.yaml": widgets}, Options{})
	custom := built(t, map[string]string{"b.yaml": "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n---\napiVersion: example.com/v1\nkind: Planet\nmetadata: {name: p, namespace: x}\n"}, Options{})
	scope := FirstKnown(cluster, RenderedScopes(crds, custom))
	placed, err := Place(custom, scope, Placement{DefaultNamespace: "team-a"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Widget team-a/w b.yaml:1", "Planet p b.yaml:5"}, origins(placed)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	_, err = Place(custom, cluster, Placement{DefaultNamespace: "team-a"})
	var failed *failure.Error
	if !errors.As(err, &failed) || failed.Reason != v1.ReasonBuildFailed || failed.Kind != failure.Stalled {
		t.Fatalf("error %v is not a stalled BuildFailed", err)
	}
	want := "b.yaml:1: Widget w: neither the cluster nor the release defines kind Widget of example.com/v1; install its CustomResourceDefinition first, or render it in this stage or an earlier one"
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

// T-89: the same object in two stages, or in two versions.
func TestDuplicates(t *testing.T) {
	stage := func(name, text string) StageManifests {
		placed, err := Place(built(t, map[string]string{name + ".yaml": text}, Options{}), cluster, Placement{DefaultNamespace: "team-a"})
		if err != nil {
			t.Fatal(err)
		}
		return StageManifests{name, placed}
	}
	ingress := func(version string) string {
		return "apiVersion: networking.k8s.io/" + version + "\nkind: Ingress\nmetadata: {name: a}\n"
	}
	many := ""
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		many += configMap(name) + "---\n"
	}
	cases := map[string]struct {
		stages []StageManifests
		want   string
	}{
		"none": {stages: []StageManifests{stage("one", configMap("a")), stage("two", configMap("b"))}},
		"another kind, group or namespace": {stages: []StageManifests{
			stage("one", configMap("a")+"---\n"+ingress("v1")),
			stage("two", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\n---\napiVersion: extensions/v1beta1\nkind: Ingress\nmetadata: {name: a}\n")}},
		"in two stages": {
			stages: []StageManifests{stage("one", configMap("a")), stage("two", configMap("a"))},
			want:   `ConfigMap team-a/a is rendered by stage "one" (one.yaml:1) and by stage "two" (two.yaml:1)`},
		"in two versions": {
			stages: []StageManifests{stage("one", ingress("v1")), stage("two", "\n\n"+ingress("v1beta1"))},
			want:   `Ingress team-a/a is rendered by stage "one" (one.yaml:1) and by stage "two" (two.yaml:3)`},
		"within a stage": {
			stages: []StageManifests{stage("one", configMap("a")+"---\n"+configMap("a"))},
			want:   `ConfigMap team-a/a is rendered by stage "one" (one.yaml:1) and by stage "one" (one.yaml:5)`},
		"with the namespace written and not": {
			stages: []StageManifests{stage("one", configMap("a")), stage("two", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: team-a}\n")},
			want:   `ConfigMap team-a/a is rendered by stage "one" (one.yaml:1) and by stage "two" (two.yaml:1)`},
		"many": {
			stages: []StageManifests{stage("one", many), stage("two", many)},
			want: `ConfigMap team-a/a is rendered by stage "one" (one.yaml:1) and by stage "two" (two.yaml:1); ConfigMap team-a/b is rendered by stage "one" (one.yaml:5) and by stage "two" (two.yaml:5); ` +
				`ConfigMap team-a/c is rendered by stage "one" (one.yaml:9) and by stage "two" (two.yaml:9); ConfigMap team-a/d is rendered by stage "one" (one.yaml:13) and by stage "two" (two.yaml:13); ` +
				`ConfigMap team-a/e is rendered by stage "one" (one.yaml:17) and by stage "two" (two.yaml:17); and 2 more`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := Duplicates(c.stages)
			if c.want == "" {
				if err != nil {
					t.Errorf("error %v", err)
				}
				return
			}
			var failed *failure.Error
			if !errors.As(err, &failed) || failed.Reason != v1.ReasonDuplicateObject || failed.Kind != failure.Stalled {
				t.Fatalf("error %v is not a stalled DuplicateObject", err)
			}
			if diff := cmp.Diff(c.want, failed.Error()); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

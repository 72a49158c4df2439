package waves

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stageset/stageset/reconciler/inventory"
)

// object reads "kind[.group] name[: what its annotation says]", an object of namespace team-a.
func object(text string) *Object {
	kind, rest, _ := strings.Cut(text, " ")
	name, annotation, _ := strings.Cut(rest, ": ")
	kind, group, _ := strings.Cut(kind, ".")
	return &Object{Key: inventory.Key{Group: group, Kind: kind, Namespace: "team-a", Name: name}, DependsOn: annotation}
}

func stagesOf(texts ...[]string) [][]*Object {
	var stages [][]*Object
	for _, stage := range texts {
		var objects []*Object
		for _, text := range stage {
			objects = append(objects, object(text))
		}
		stages = append(stages, objects)
	}
	return stages
}

// inWaves are the objects of each wave, in alphabetical order.
func inWaves(objects []*Object) []string {
	names := map[int][]string{}
	var numbers []int
	for _, object := range objects {
		name := object.Key.Kind + " " + object.Key.Name
		if object.Gate {
			name += " (gate)"
		}
		if names[object.Wave] == nil {
			numbers = append(numbers, object.Wave)
		}
		names[object.Wave] = append(names[object.Wave], name)
	}
	slices.Sort(numbers)
	var waves []string
	for _, number := range numbers {
		slices.Sort(names[number])
		waves = append(waves, strings.Join(names[number], ", "))
	}
	return waves
}

func TestOrder(t *testing.T) {
	for name, tc := range map[string]struct{ stage, want []string }{
		// T-12, T-60, T-63: what others need comes first, whatever the order of documents.
		"kinds": {
			stage: []string{
				"ValidatingWebhookConfiguration.admissionregistration.k8s.io guard", "Pod web", "ConfigMap settings",
				"RoleBinding.rbac.authorization.k8s.io reader", "Thing.example.com one",
				"Role.rbac.authorization.k8s.io reader", "CustomResourceDefinition.apiextensions.k8s.io things",
				"ServiceAccount app", "Namespace team-a",
			},
			want: []string{
				"CustomResourceDefinition things (gate), Namespace team-a", "Role reader, ServiceAccount app",
				"RoleBinding reader", "ConfigMap settings", "Pod web, Thing one", "ValidatingWebhookConfiguration guard",
			},
		},
		// What refuses everything else still comes last.
		"what objects name": {
			stage: []string{
				"ValidatingWebhookConfiguration.admissionregistration.k8s.io guard", "ConfigMap plain", "Deployment.apps web",
				"ConfigMap third: /namespaces/team-a/ConfigMap/second, /namespaces/team-a/Secret/first", "Secret first",
				"ConfigMap second: apps/namespaces/team-a/Deployment/web",
			},
			want: []string{
				"ConfigMap plain, Secret first (gate)", "Deployment web (gate)", "ConfigMap second (gate)", "ConfigMap third",
				"ValidatingWebhookConfiguration guard",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			stages := stagesOf(tc.stage)
			if problems := Order(stages); len(problems) > 0 {
				t.Fatal(problems)
			}
			if diff := cmp.Diff(tc.want, inWaves(stages[0])); diff != "" {
				t.Errorf("waves (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReferencesThatCannotBeHonoured(t *testing.T) {
	for name, tc := range map[string]struct {
		stages [][]string
		want   []string // "object: text", without the beginning that all have
	}{
		"an earlier stage": {stages: [][]string{{"ConfigMap a"}, {"ConfigMap b: /namespaces/team-a/ConfigMap/a"}}},
		"a later stage": {
			stages: [][]string{{"ConfigMap a: /namespaces/team-a/ConfigMap/b"}, {"ConfigMap b"}},
			want:   []string{"a: names ConfigMap team-a/b, which only a later stage renders"},
		},
		"nothing that is rendered": {
			stages: [][]string{{"ConfigMap a: /namespaces/team-a/ConfigMap/b,rbac.authorization.k8s.io/ClusterRole/c"}},
			want: []string{
				"a: names ConfigMap team-a/b, which no stage renders",
				"a: names ClusterRole.rbac.authorization.k8s.io c, which no stage renders",
			},
		},
		"itself": {
			stages: [][]string{{"ConfigMap a: /namespaces/team-a/ConfigMap/a"}},
			want:   []string{"a: leads in a circle: ConfigMap team-a/a -> ConfigMap team-a/a"},
		},
		"a circle that others lead to": {
			stages: [][]string{{
				"ConfigMap a: /namespaces/team-a/ConfigMap/c", "ConfigMap b: /namespaces/team-a/ConfigMap/c",
				"ConfigMap c: /namespaces/team-a/ConfigMap/b",
			}},
			want: []string{"c: leads in a circle: ConfigMap team-a/c -> ConfigMap team-a/b -> ConfigMap team-a/c"},
		},
		"no reference": {
			stages: [][]string{{"ConfigMap a: ConfigMap/b"}},
			want: []string{`a: has "ConfigMap/b": it must be group/namespaces/namespace/kind/name, ` +
				"or group/kind/name for what is in no namespace"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, problem := range Order(stagesOf(tc.stages...)) {
				text, found := strings.CutPrefix(problem.Text, "its annotation config.kubernetes.io/depends-on ")
				if !found {
					t.Errorf("%q does not name the annotation", problem.Text)
				}
				got = append(got, problem.Object.Key.Name+": "+text)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

package preflight

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/stageset/stageset/api/v1"
)

// after is a ConfigMap of team-a that names others in its annotation.
func after(name, references string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: team-a, annotations: {%s: %q}}",
		name, v1.AnnotationDependsOn, references)
}

func TestDependsOnOrdersAStage(t *testing.T) {
	deployment := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: team-a}"
	webhook := "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: w}"
	stages := release(t, nil, []string{
		webhook, plain, namespace, deployment,
		after("third", "/namespaces/team-a/ConfigMap/second, /Namespace/shop"),
		after("second", "apps/namespaces/team-a/Deployment/web"),
	})
	if problems := order(stages); len(problems) > 0 {
		t.Fatal(problems)
	}
	var got []string
	for _, object := range stages[0].Objects() {
		name := object.key.Name
		if object.Gate() {
			name += " (gate)"
		}
		got = append(got, name)
	}
	// What refuses everything else still comes last.
	want := []string{"shop (gate)", "plain", "web (gate)", "second (gate)", "third", "w"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestDependsOnThatCannotBeHonoured(t *testing.T) {
	for name, tc := range map[string]struct {
		stages [][]string
		want   []string
	}{
		"an earlier stage": {stages: [][]string{{plain}, {after("a", "/namespaces/team-a/ConfigMap/plain")}}},
		"a later stage": {
			stages: [][]string{{after("a", "/namespaces/team-a/ConfigMap/plain")}, {plain}},
			want: []string{"stage a: ConfigMap team-a/a: its annotation config.kubernetes.io/depends-on names " +
				"ConfigMap team-a/plain, which only a later stage renders"},
		},
		"nothing that is rendered": {
			stages: [][]string{{after("a", "/namespaces/team-a/ConfigMap/b,rbac.authorization.k8s.io/ClusterRole/c")}},
			want: []string{
				"stage a: ConfigMap team-a/a: its annotation config.kubernetes.io/depends-on names " +
					"ConfigMap team-a/b, which no stage renders",
				"stage a: ConfigMap team-a/a: its annotation config.kubernetes.io/depends-on names " +
					"ClusterRole.rbac.authorization.k8s.io c, which no stage renders",
			},
		},
		"itself": {
			stages: [][]string{{after("a", "/namespaces/team-a/ConfigMap/a")}},
			want: []string{"stage a: ConfigMap team-a/a: its annotation config.kubernetes.io/depends-on leads in a circle: " +
				"ConfigMap team-a/a -> ConfigMap team-a/a"},
		},
		"a circle that others lead to": {
			stages: [][]string{{after("a", "/namespaces/team-a/ConfigMap/c"), after("b", "/namespaces/team-a/ConfigMap/c"),
				after("c", "/namespaces/team-a/ConfigMap/b")}},
			want: []string{"stage a: ConfigMap team-a/c: its annotation config.kubernetes.io/depends-on leads in a circle: " +
				"ConfigMap team-a/c -> ConfigMap team-a/b -> ConfigMap team-a/c"},
		},
		"no reference": {
			stages: [][]string{{after("a", "ConfigMap/plain")}},
			want: []string{`stage a: ConfigMap team-a/a: its annotation config.kubernetes.io/depends-on has "ConfigMap/plain": ` +
				"it must be group/namespaces/namespace/kind/name, or group/kind/name for what is in no namespace"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, problem := range order(release(t, nil, tc.stages...)) {
				got = append(got, problem.text(""))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

package app

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"
)

// What the program asks for at its start is what the generated roles grant, in both directions (T-18). Tokens are the one
// exception: whether they may be requested differs from namespace to namespace, and shows where it is done.
func TestRolesGrantWhatIsAskedFor(t *testing.T) {
	content, err := os.ReadFile("../../charts/stageset/files/reconciler-rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	granted := sets.New[string]()
	for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
		var role rbacv1.Role
		if err := yaml.Unmarshal(document, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			granted.Insert(permissionsOf(role.Namespace, rule)...)
		}
	}
	asked := sets.New("create /serviceaccounts/token")
	for _, attributes := range permissions(&Options{Name: "stageset", Namespace: "stageset-system", LeaderElect: true}) {
		resource := attributes.Resource
		if attributes.Subresource != "" {
			resource += "/" + attributes.Subresource
		}
		asked.Insert(line(attributes.Namespace, attributes.Verb, attributes.Group, resource, attributes.Name))
	}
	if diff := cmp.Diff(sorted(asked), sorted(granted)); diff != "" {
		t.Errorf("permissions (-asked +granted):\n%s", diff)
	}
}

func permissionsOf(namespace string, rule rbacv1.PolicyRule) []string {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var lines []string
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				for _, name := range names {
					lines = append(lines, line(namespace, verb, group, resource, name))
				}
			}
		}
	}
	return lines
}

func line(namespace, verb, group, resource, name string) string {
	return strings.TrimSpace(verb + " " + group + "/" + resource + " " + strings.TrimSpace(namespace+" "+name))
}

func sorted(set sets.Set[string]) []string { return slices.Sorted(slices.Values(set.UnsortedList())) }

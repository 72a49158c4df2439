package app

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// The roles that the chart installs and the permissions that the program asks for at its start are the same, in both
// directions: nothing is missing, and nothing is granted that is not used.
func TestRolesGrantWhatTheProgramAsksFor(t *testing.T) {
	options := parseOptions(t, "--namespace=stageset-system")
	options.Complete()
	allowed := granted(t, "../../charts/stageset/files/admission-rbac.yaml")
	if diff := cmp.Diff(allowed, sorted(permissions(options))); diff != "" {
		t.Errorf("permissions (-granted +asked):\n%s", diff)
	}
}

// Whose certificate is made by somebody else needs no Secret, and writes no webhook configuration.
func TestFilesNeedFewerPermissions(t *testing.T) {
	options := parseOptions(t, "--namespace=stageset-system", "--cert-provider=files", "--cert-dir=/a")
	needed := permissions(options)
	if len(needed) == 0 {
		t.Fatal("it needs none at all")
	}
	for _, attributes := range needed {
		writes := attributes.Group == admissionregistrationv1.GroupName && attributes.Verb == "patch"
		if attributes.Resource == "secrets" || writes {
			t.Errorf("it needs %s %s", attributes.Verb, attributes.Resource)
		}
	}
	allowed := granted(t, "../../charts/stageset/files/admission-rbac.yaml")
	for _, attributes := range needed {
		if !slices.Contains(allowed, attributes) {
			t.Errorf("no role grants %s %s", attributes.Verb, attributes.Resource)
		}
	}
}

// granted lists what the roles of a file allow.
func granted(t *testing.T, path string) []authorizationv1.ResourceAttributes {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []authorizationv1.ResourceAttributes
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		var role rbacv1.Role // a ClusterRole has the same rules
		if err := decoder.Decode(&role); errors.Is(err, io.EOF) {
			return sorted(out)
		} else if err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			out = append(out, expand(rule, role.Namespace)...)
		}
	}
}

func expand(rule rbacv1.PolicyRule, namespace string) []authorizationv1.ResourceAttributes {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var out []authorizationv1.ResourceAttributes
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			resource, subresource, _ := strings.Cut(resource, "/")
			for _, verb := range rule.Verbs {
				for _, name := range names {
					out = append(out, authorizationv1.ResourceAttributes{
						Group: group, Resource: resource, Subresource: subresource, Verb: verb, Name: name, Namespace: namespace,
					})
				}
			}
		}
	}
	return out
}

func sorted(attributes []authorizationv1.ResourceAttributes) []authorizationv1.ResourceAttributes {
	return slices.SortedFunc(slices.Values(attributes), func(a, b authorizationv1.ResourceAttributes) int {
		return strings.Compare(a.String(), b.String())
	})
}

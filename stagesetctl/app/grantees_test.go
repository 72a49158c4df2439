package app_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/stagesetctl/app"
)

// abroad is a StageSet whose stages are applied to another cluster, by the token of another account than its own.
const abroad = `
apiVersion: stages.metio.wtf/v1
kind: StageSet
metadata: {name: abroad, namespace: default}
spec:
  serviceAccountName: deployer
  kubeConfig: {configMapRef: {name: abroad}}
  dependsOn: [{name: base}]
  stages:
  - name: app
    sourceRef: {kind: GitRepository, name: app}
  - name: more
    serviceAccountName: admin
    sourceRef: {kind: GitRepository, name: more}
    readyChecks: {checks: [{apiVersion: v1, kind: Node, name: one}]}
`

// leadsAbroad is what abroad is reached by.
const leadsAbroad = `
apiVersion: v1
kind: ConfigMap
metadata: {name: abroad, namespace: default}
data: {provider: aws, cluster: "arn:aws:eks:eu-central-1:123456789012:cluster/production", serviceAccountName: hub}
`

// nobodys is a StageSet that names no account.
const nobodys = `
apiVersion: stages.metio.wtf/v1
kind: StageSet
metadata: {name: nobodys, namespace: shop}
spec:
  dependsOn: [{name: base}]
  stages: [{name: app, sourceRef: {kind: GitRepository, name: app}}]
`

// Whom roles are for is said by the StageSet, or else by what its installation does; and of two clusters each gets what is
// needed in it.
func TestRBACForWhom(t *testing.T) {
	cluster.Shared(t).Apply(t, leadsAbroad)
	file := written(t, map[string]string{"abroad": abroad, "nobodys": nobodys})
	base := written(t, map[string]string{"app.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}"})
	more := written(t, map[string]string{"more.yaml": "{apiVersion: v1, kind: Namespace, metadata: {name: more}}"})
	ofAbroad := []string{
		"--filename", file("abroad"), "--source", "GitRepository/default/app=" + base(""),
		"--source", "GitRepository/default/more=" + more(""),
	}
	ofNobody := []string{"--filename", file("nobodys"), "--source", "GitRepository/shop/app=" + base("")}
	there := []string{
		"ClusterRole r-admin: [get create patch delete] [namespaces] [more]",
		"ClusterRole r-admin: [get] [nodes] [one]",
		"ClusterRoleBinding r-admin: User system:serviceaccount:default:admin",
		"Role default/r-deployer: [get create patch delete] [configmaps] []",
		"RoleBinding default/r-deployer: User system:serviceaccount:default:deployer",
	}
	ofNobodys := []string{
		"Role shop/stageset-shop-nobodys: [get create patch delete] [configmaps] []",
		"Role shop/stageset-shop-nobodys: [get] [gitrepositories] [app]",
		"Role shop/stageset-shop-nobodys: [get] [stagesets] [base]",
	}
	for name, test := range map[string]struct {
		set, flags []string
		want       []string
	}{
		"the StageSet's own cluster": {
			set: ofAbroad, flags: []string{"--cluster", "home", "--as-role", "r"},
			want: []string{
				"Role default/r-admin: [get] [gitrepositories] [more]",
				"RoleBinding default/r-admin: ServiceAccount default/admin",
				"Role default/r-deployer: [get] [configmaps] [abroad]",
				"Role default/r-deployer: [get impersonate] [serviceaccounts] [hub]",
				"Role default/r-deployer: [get] [gitrepositories] [app]",
				"Role default/r-deployer: [get] [stagesets] [base]",
				"RoleBinding default/r-deployer: ServiceAccount default/deployer",
			},
		},
		"the other cluster": {
			set: ofAbroad, flags: []string{"--cluster", "target", "--target-user", "arn:aws:iam::1:role/hub", "--as-role", "r"},
			want: slices.Concat([]string{
				"Namespace default", // which may be there
				"Role default/r: [impersonate] [serviceaccounts] [admin deployer]",
				"RoleBinding default/r: User arn:aws:iam::1:role/hub",
			}, there),
		},
		"the other cluster, which is known, by a user that is not": {
			set: ofAbroad, flags: []string{
				"--cluster", "target", "--target-kubeconfig", cluster.Shared(t).Kubeconfig, "--as-role", "r",
			},
			want: slices.Concat([]string{"Role default/r: [impersonate] [serviceaccounts] [admin deployer]"}, there),
		},
		"the default account": {
			set: ofNobody, flags: []string{"--default-service-account", "deployer"},
			want: append(slices.Clone(ofNobodys), "RoleBinding shop/stageset-shop-nobodys: ServiceAccount shop/deployer"),
		},
		"the reconciler": {
			set: ofNobody, flags: []string{"--reconciler", "stageset-system/stageset-reconciler"},
			want: append(slices.Clone(ofNobodys),
				"RoleBinding shop/stageset-shop-nobodys: ServiceAccount stageset-system/stageset-reconciler"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			arguments := append([]string{"rbac", "--kubeconfig", cluster.Shared(t).Kubeconfig}, test.set...)
			out, stderr, code := run(t, "", append(arguments, test.flags...)...)
			if code != app.ExitOK {
				t.Fatalf("%s (exit code %d)", stderr, code)
			}
			if diff := cmp.Diff(test.want, granted(t, out)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever names are printed, they are read as the names that they are.
func TestRBACOfHostileNames(t *testing.T) {
	const hostile = "x\n---\nkind: ClusterRoleBinding\nsubjects: [{kind: User, name: \"a\"}]\r# '\t: *a"
	name, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	file := written(t, map[string]string{"nobodys": nobodys})
	base := written(t, map[string]string{"app.yaml": "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nvalue: 1\n" +
		"metadata: {name: " + string(name) + "}\n"})
	out, stderr, code := run(t, "", "rbac", "--kubeconfig", cluster.Shared(t).Kubeconfig, "--filename", file("nobodys"),
		"--source", "GitRepository/shop/app="+base(""), "--default-service-account", hostile, "--as-role", "r")
	if code != app.ExitOK {
		t.Fatalf("%s (exit code %d)", stderr, code)
	}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(out)))
	var kinds, names []string
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		var role rbacv1.ClusterRole
		var binding rbacv1.ClusterRoleBinding
		if err := errors.Join(err, yaml.Unmarshal(document, &role), yaml.Unmarshal(document, &binding)); err != nil {
			t.Fatal(err)
		}
		if role.Kind == "" {
			continue // the comment
		}
		kinds = append(kinds, role.Kind)
		for _, rule := range role.Rules {
			names = append(names, rule.ResourceNames...)
		}
		for _, subject := range binding.Subjects {
			names = append(names, subject.Name)
		}
	}
	if diff := cmp.Diff([]string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}, kinds); diff != "" {
		t.Errorf("documents (-want +got):\n%s", diff)
	}
	// The class, the account, the source and the StageSet that is depended on, and the account again.
	if diff := cmp.Diff([]string{hostile, hostile, "app", "base", hostile}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// granted is what is printed, in short: a line for each rule of a role, whom each binding is for, and what else there is.
func granted(t *testing.T, printed string) []string {
	t.Helper()
	var lines []string
	for document := range strings.SplitSeq(printed, "---\n") {
		var object struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
			Rules    []rbacv1.PolicyRule
			Subjects []rbacv1.Subject
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		what := object.Kind + " " + strings.TrimPrefix(object.Metadata.Namespace+"/"+object.Metadata.Name, "/")
		for _, rule := range object.Rules {
			lines = append(lines, fmt.Sprint(what, ": ", rule.Verbs, rule.Resources, rule.ResourceNames))
		}
		for _, subject := range object.Subjects {
			lines = append(lines, fmt.Sprint(what, ": ", subject.Kind, " ", strings.TrimPrefix(subject.Namespace+"/"+subject.Name, "/")))
		}
		if len(object.Rules)+len(object.Subjects) == 0 && object.Kind != "" {
			lines = append(lines, what)
		}
	}
	return lines
}

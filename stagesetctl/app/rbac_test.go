package app_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/stagesetctl/app"
)

// shop is a StageSet whose stages have an account each.
const shop = `
apiVersion: stages.metio.wtf/v1
kind: StageSet
metadata: {name: shop, namespace: shop}
spec:
  serviceAccountName: deployer
  dependsOn: [{name: base, namespace: platform}]
  stages:
  - {name: app, prune: false, sourceRef: {kind: GitRepository, name: app}}
  - name: classes
    serviceAccountName: admin
    sourceRef: {apiVersion: example.com/v1, kind: Chart, name: chart}
    readyChecks: {checks: [{apiVersion: apps/v1, kind: Deployment, name: web}]}
`

// What is printed is the least: get where something is only read, no delete where nothing is pruned, names where there is no
// namespace.
func TestRBAC(t *testing.T) {
	set := written(t, map[string]string{"stageset.yaml": shop})
	base := written(t, map[string]string{"app.yaml": `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: web}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: web, namespace: shop}]`})
	classes := written(t, map[string]string{"class.yaml": `
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1`})
	out, stderr, code := run(t, "", "rbac", "--kubeconfig", cluster.Shared(t).Kubeconfig, "--filename", set("stageset.yaml"),
		"--as-role", "release", "--source", "GitRepository/shop/app="+base(""), "--source", "Chart/shop/chart="+classes(""))
	if code != app.ExitOK {
		t.Fatalf("%s (exit code %d)", stderr, code)
	}
	want, err := os.ReadFile("testdata/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out); diff != "" {
		t.Errorf("testdata/rbac.yaml (-want +got):\n%s", diff)
	}
}

func TestRBACSaysWhatIsWrong(t *testing.T) {
	cluster.Shared(t).Apply(t, leadsAbroad)
	file := written(t, map[string]string{
		"shop": shop, "abroad": abroad, "nobodys": nobodys,
	})
	content := written(t, map[string]string{"a.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"})
	placeholders := strings.NewReplacer("KUBECONFIG", cluster.Shared(t).Kubeconfig, "SHOP", file("shop"),
		"ABROAD", file("abroad"), "NOBODYS", file("nobodys"), "CONTENT", content(""))
	for name, test := range map[string]struct {
		arguments []string
		want      string
	}{
		"no StageSet":   {want: "takes a StageSet, as NAMESPACE/NAME, or --filename"},
		"two StageSets": {arguments: []string{"a/b", "-f", "c"}, want: "takes a StageSet, as NAMESPACE/NAME, or --filename"},
		"an odd source": {
			arguments: []string{"a/b", "--source", "Bucket/b=c"},
			want:      `--source "Bucket/b=c": it must be KIND/NAMESPACE/NAME=DIRECTORY`,
		},
		"an odd server": {
			arguments: []string{"a/b", "--artifact-server", "localhost:80"}, want: "--artifact-server that is no address",
		},
		"an odd role": {arguments: []string{"a/b", "--as-role", "A_b"}, want: `--as-role "A_b"`},
		"no cluster":  {arguments: []string{"a/b", "--kubeconfig", "testdata/absent"}, want: "kubeconfig"},
		"a name without more": {
			arguments: []string{"/b", "--kubeconfig", "KUBECONFIG"}, want: `"/b" is no StageSet: it must be NAMESPACE/NAME`,
		},
		"an odd reconciler": {arguments: []string{"a/b", "--reconciler", "a"}, want: `--reconciler, but "a" is no account`},
		"an odd cluster":    {arguments: []string{"a/b", "--cluster", "a"}, want: `--cluster is "a": it must be home or target`},
		"no other cluster": {
			arguments: []string{"-f", "SHOP", "--kubeconfig", "KUBECONFIG", "--cluster", "target"},
			want:      "spec.kubeConfig is not set: there is no other cluster",
		},
		"two clusters": {
			arguments: []string{"-f", "ABROAD", "--kubeconfig", "KUBECONFIG"},
			want:      "spec.kubeConfig is set, and roles are needed in two clusters: print those of the StageSet's own with --cluster",
		},
		"what is missing in an unknown cluster": {
			arguments: []string{"-f", "ABROAD", "--kubeconfig", "KUBECONFIG", "--cluster", "target", "--missing"},
			want:      "only that one knows: say how you reach it with --target-kubeconfig or --target-context",
		},
		"what an unknown user is missing": {
			arguments: []string{
				"-f", "ABROAD", "--kubeconfig", "KUBECONFIG", "--cluster", "target", "--missing", "--target-kubeconfig", "KUBECONFIG",
				"--source", "GitRepository/default/app=CONTENT", "--source", "GitRepository/default/more=CONTENT",
			},
			want: "the user that spec.kubeConfig leads to may lack something: name it with --target-user",
		},
		"nobody": {
			arguments: []string{"-f", "NOBODYS", "--kubeconfig", "KUBECONFIG", "--source", "GitRepository/shop/app=CONTENT"},
			want:      "no account is named for all of it: set spec.serviceAccountName, or the serviceAccountName of each stage",
		},
		"an absent StageSet": {arguments: []string{"a/b", "--kubeconfig", "KUBECONFIG"}, want: "the StageSet: "},
	} {
		t.Run(name, func(t *testing.T) {
			arguments := []string{"rbac"}
			for _, argument := range test.arguments {
				arguments = append(arguments, placeholders.Replace(argument))
			}
			out, stderr, code := run(t, "", arguments...)
			if code != app.ExitFailure || !strings.Contains(stderr, test.want) || out != "" {
				t.Errorf("exit code %d, want %q:\n%s%s", code, test.want, out, stderr)
			}
		})
	}
}

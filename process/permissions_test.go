package process_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/process"
)

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// An account that may do some of what is needed is told about all of the rest.
func TestCheckPermissions(t *testing.T) {
	c := cluster.Shared(t)
	namespace := c.Namespace(t, "permissions")
	c.Apply(t, strings.ReplaceAll(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: program, namespace: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: program, namespace: NAMESPACE}
rules:
- {apiGroups: [""], resources: [secrets], resourceNames: [tls], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: program, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: program}
subjects: [{kind: ServiceAccount, name: program, namespace: NAMESPACE}]
`, "NAMESPACE", namespace))
	config := c.TokenConfig(t, namespace, "program")

	granted := authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Name: "tls", Namespace: namespace}
	update := granted
	update.Verb = "update"
	status := authorizationv1.ResourceAttributes{
		Verb: "patch", Group: "stages.metio.wtf", Resource: "stagesets", Subresource: "status",
	}
	for name, test := range map[string]struct {
		needed []authorizationv1.ResourceAttributes
		want   string
	}{
		"nothing is missing": {needed: []authorizationv1.ResourceAttributes{granted}},
		"all that is missing": {
			needed: []authorizationv1.ResourceAttributes{update, granted, status},
			want: "this account may not update secrets tls in namespace " + namespace + "\n" +
				"this account may not patch stagesets/status.stages.metio.wtf",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := process.CheckPermissions(t.Context(), config, test.needed); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// An API server that gives no answer is not a missing permission.
func TestCheckPermissionsWithoutAnAnswer(t *testing.T) {
	config := rest.AnonymousClientConfig(cluster.Shared(t).Config)
	config.BearerToken = "of nobody"
	err := process.CheckPermissions(t.Context(), config, []authorizationv1.ResourceAttributes{{Verb: "get", Resource: "pods"}})
	if err == nil || !strings.Contains(err.Error(), "asking whether this account may get pods: Unauthorized") {
		t.Errorf("error: %v", err)
	}
}

func TestRESTConfig(t *testing.T) {
	c := cluster.Shared(t)
	config, err := process.RESTConfig(c.Kubeconfig, "program")
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != c.Config.Host || !strings.HasPrefix(config.UserAgent, "program/development ") || config.QPS != -1 {
		t.Errorf("host %s, user agent %s, QPS %v", config.Host, config.UserAgent, config.QPS)
	}
}

func TestRESTConfigSaysWhatIsMissing(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	missing := filepath.Join(t.TempDir(), "kubeconfig")
	for name, test := range map[string]struct {
		kubeconfig string
		want       []string
	}{
		"no file":                   {missing, []string{"--kubeconfig", missing}},
		"no Pod, and no kubeconfig": {"", []string{"not in a Pod, and no --kubeconfig"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := process.RESTConfig(test.kubeconfig, "program")
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v lacks %q", err, want)
				}
			}
		})
	}
}

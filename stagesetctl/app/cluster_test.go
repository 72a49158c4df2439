package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/api/crds"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/stagesetctl/app"
)

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

const stored = `
apiVersion: stages.metio.wtf/v1alpha1
kind: StageSetPolicy
metadata: {name: few-stages}
spec:
  validations: [{name: few, expression: object.spec.stages.size() <= 5, message: at most five stages}]
---
apiVersion: stages.metio.wtf/v1alpha1
kind: StageSetPolicy
metadata: {name: images}
spec:
  target: Manifest
  failurePolicy: Ignore
  validationActions: [Warn, Audit]
  validations: [{name: none, expression: object.kind != 'Pod', message: no Pods}]
---
apiVersion: stages.metio.wtf/v1alpha1
kind: StageSetPolicy
metadata: {name: interval}
spec:
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{spec: Object.spec{interval: '5m'}}"}
`

// installations are what two installations make of the first policy, and one of the second.
func installations() map[string][]v1alpha1.InstallationStatus {
	condition := func(kind, reason string) metav1.Condition {
		status := metav1.ConditionFalse
		if reason == v1alpha1.ReasonReady || reason == v1alpha1.ReasonMatches {
			status = metav1.ConditionTrue
		}
		return metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.Now()}
	}
	return map[string][]v1alpha1.InstallationStatus{
		"few-stages": {
			{Name: "blue/stageset", ObservedGeneration: 1, Conditions: []metav1.Condition{
				condition(v1alpha1.ConditionReady, v1alpha1.ReasonReady),
				condition(v1alpha1.ConditionEffective, v1alpha1.ReasonMatches),
			}, Audit: &v1alpha1.AuditStatus{ObservedAt: metav1.Now(), Evaluated: 120, Violations: 3}},
			{Name: "green/stageset", ObservedGeneration: 1, Conditions: []metav1.Condition{
				condition(v1alpha1.ConditionReady, v1alpha1.ReasonTestsFailed),
			}},
		},
		"images": {{Name: "blue/stageset"}}, // which has not seen this version
	}
}

// TestCluster: policies are read from the cluster that a kubeconfig names, with what its user may do.
func TestCluster(t *testing.T) {
	c := cluster.Shared(t)
	admin := c.WriteKubeconfig(t, c.Config)
	list := func(arguments ...string) (string, string, int) {
		return run(t, "", append([]string{"policy", "list", "--kubeconfig", admin}, arguments...)...)
	}

	_, stderr, code := list()
	const notInstalled = "stagesetctl: the cluster has no StageSetPolicies: their CustomResourceDefinition is not installed\n"
	if stderr != notInstalled || code != app.ExitFailure {
		t.Errorf("without their CRD: %q, %d", stderr, code)
	}
	c.InstallCRDs(t, crds.FS)
	if out, stderr, code := list(); out != "" || stderr != "There are no policies in the cluster.\n" || code != app.ExitOK {
		t.Errorf("without a policy: %q, %q, %d", out, stderr, code)
	}
	if out, _, code := list("-o", "json"); !strings.Contains(out, `"items": []`) || code != app.ExitOK {
		t.Errorf("without a policy, as JSON: %q, %d", out, code)
	}
	store(t, c)

	t.Run("a table", func(t *testing.T) {
		out, stderr, _ := list()
		want := `
NAME         TARGET     ACTIONS      ON FAILURE   INSTALLATION     READY                 EFFECTIVE   VIOLATIONS
few-stages   StageSet   Deny         Fail         blue/stageset    True                  True        3
few-stages   StageSet   Deny         Fail         green/stageset   False (TestsFailed)   -           -
images       Manifest   Warn,Audit   Ignore       blue/stageset    outdated              outdated    -
interval     StageSet   fills in     Fail         -                -                     -           -
`
		if diff := cmp.Diff(want, "\n"+out); diff != "" || stderr != "" {
			t.Errorf("%s\n(-want +got):\n%s", stderr, diff)
		}
	})
	t.Run("names", func(t *testing.T) {
		if out, _, _ := list("-o", "name"); out != "few-stages\nimages\ninterval\n" {
			t.Errorf("got %q", out)
		}
		out, _, _ := run(t, "", "__complete", "policy", "show", "--kubeconfig", admin, "")
		if !strings.HasPrefix(out, "few-stages\nimages\n") {
			t.Errorf("completed to %q", out)
		}
		if out, _, _ := run(t, "", "policy", "show", "images", "-o", "name", "--kubeconfig", admin); out != "images\n" {
			t.Errorf("shown as %q", out)
		}
	})
	t.Run("files", func(t *testing.T) {
		for _, format := range []string{"yaml", "json"} {
			all, _, _ := list("-o", format)
			one, _, _ := run(t, "", "policy", "show", "images", "-o", format, "--kubeconfig", admin)
			for text, want := range map[string]string{all: "3 policies are fine\n", one: "1 policy is fine\n"} {
				if out, stderr, _ := run(t, text, "policy", "check", "-"); out != want {
					t.Errorf("%s that is shown is checked to %q %q:\n%s", format, out, stderr, text)
				}
			}
			if strings.Contains(all+one, "managedFields") {
				t.Errorf("managed fields are shown in %s", format)
			}
		}
	})
	t.Run("a policy that there is not", func(t *testing.T) {
		_, stderr, code := run(t, "", "policy", "show", "nothing", "--kubeconfig", admin)
		want := "stagesetctl: the cluster has no policy \"nothing\": see \"stagesetctl policy list\"\n"
		if stderr != want || code != app.ExitFailure {
			t.Errorf("got %q, %d", stderr, code)
		}
	})
	t.Run("who may read one", func(t *testing.T) { mayReadOne(t, c) })
	t.Run("no cluster", func(t *testing.T) { noCluster(t, c, admin) })
}

// store stores the policies, with a status.
func store(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	c.Apply(t, stored)
	writer := c.Client(t)
	for name, status := range installations() {
		patch, err := json.Marshal(map[string]any{"status": v1alpha1.StageSetPolicyStatus{Installations: status}})
		if err != nil {
			t.Fatal(err)
		}
		policy := cluster.Ref(v1alpha1.GroupVersion.String(), v1alpha1.KindStageSetPolicy, "", name)
		if err := writer.Status().Patch(t.Context(), policy, client.RawPatch("application/merge-patch+json", patch)); err != nil {
			t.Fatal(err)
		}
	}
}

// mayReadOne: who may only get a policy sees it, and is told what it takes to list them.
func mayReadOne(t *testing.T, c *cluster.Cluster) {
	namespace := c.Namespace(t, "reader")
	c.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s}
rules: [{apiGroups: [stages.metio.wtf], resources: [stagesetpolicies], verbs: [get], resourceNames: [images]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{kind: ServiceAccount, name: reader, namespace: %[1]s}]`, namespace))
	reader := c.WriteKubeconfig(t, c.TokenConfig(t, namespace, "reader"))
	_, stderr, code := run(t, "", "policy", "list", "--kubeconfig", reader)
	want := fmt.Sprintf("stagesetctl: you may not list policies: have \"list\" granted on stagesetpolicies.stages.metio.wtf, "+
		"which belong to no namespace, with a ClusterRole (stagesetpolicies.stages.metio.wtf is forbidden: User "+
		"\"system:serviceaccount:%s:reader\" cannot list resource \"stagesetpolicies\" in API group \"stages.metio.wtf\" "+
		"at the cluster scope)\n", namespace)
	if diff := cmp.Diff(want, stderr); diff != "" || code != app.ExitFailure {
		t.Errorf("%d (-want +got):\n%s", code, diff)
	}
	cluster.Eventually(t, func(context.Context) error { // RBAC takes a moment
		out, stderr, code := run(t, "", "policy", "show", "images", "--kubeconfig", reader)
		if !strings.Contains(out, "target: Manifest") || code != app.ExitOK {
			return fmt.Errorf("got %q, %q, %d", out, stderr, code)
		}
		return nil
	})
	_, stderr, code = run(t, "", "policy", "show", "interval", "--kubeconfig", reader)
	if !strings.HasPrefix(stderr, "stagesetctl: you may not get policies: ") || code != app.ExitFailure {
		t.Errorf("another one: %q, %d", stderr, code)
	}
	out, _, code := run(t, "", "__complete", "policy", "show", "--kubeconfig", reader, "")
	if out != ":4\n" || code != app.ExitOK {
		t.Errorf("completed to %q, %d", out, code)
	}
}

// noCluster: what is wrong with a kubeconfig is said on one line.
func noCluster(t *testing.T, c *cluster.Cluster, admin string) {
	nobody := rest.AnonymousClientConfig(c.Config)
	nobody.Host = "https://127.0.0.1:1"
	anonymous := rest.AnonymousClientConfig(c.Config)
	anonymous.BearerToken = "wrong"
	for name, test := range map[string]struct {
		arguments []string
		want      string
	}{
		"no file":    {[]string{"--kubeconfig", "nowhere"}, `the kubeconfig: stat nowhere: no such file or directory`},
		"no context": {[]string{"--kubeconfig", admin, "--context", "other"}, `the kubeconfig: context "other" does not exist`},
		"no server": {
			[]string{"--kubeconfig", c.WriteKubeconfig(t, nobody)},
			`reading policies of the cluster: Get "https://127\.0\.0\.1:1/[^"]+": dial tcp 127.0.0.1:1: connect: connection refused`},
		"no credentials": {
			[]string{"--kubeconfig", c.WriteKubeconfig(t, anonymous)},
			`reading policies of the cluster: Unauthorized`},
		"no time": {
			[]string{"--kubeconfig", admin, "--request-timeout", "1ns"},
			`reading policies of the cluster: .*(context deadline exceeded|Client\.Timeout).*`},
	} {
		t.Run(name, func(t *testing.T) {
			out, stderr, code := run(t, "", append([]string{"policy", "list"}, test.arguments...)...)
			if !regexp.MustCompile("^stagesetctl: "+test.want+"\n$").MatchString(stderr) || out != "" || code != app.ExitFailure {
				t.Errorf("got %q, %q, %d", out, stderr, code)
			}
		})
	}
}

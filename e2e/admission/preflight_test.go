package admission_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/stageset/stageset/e2e/cluster"
)

// fail runs the program, which must end by itself with the exit code 1, and returns what it wrote.
func (i *installation) fail(t *testing.T, arguments ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, binary, append(i.arguments(&replica{port: i.port}), arguments...)...)
	output, err := command.CombinedOutput()
	if command.ProcessState.ExitCode() != 1 {
		t.Errorf("it ended with %v, want exit code 1", err)
	}
	return string(output)
}

func TestStartNamesEveryMissingPermission(t *testing.T) {
	i := install(t)
	role := &rbacv1.Role{}
	role.Namespace, role.Name = i.name, i.name+"-admission"
	if err := i.client.Delete(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	output := i.fail(t)
	for _, want := range []string{
		"this account may not list secrets in namespace " + i.name,
		"this account may not update secrets " + i.name + "-admission-tls in namespace " + i.name,
		"this account may not create leases.coordination.k8s.io in namespace " + i.name,
		"this account may not create events in namespace " + i.name,
	} {
		if !strings.Contains(output, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if strings.Contains(output, "may not list namespaces") {
		t.Error("the output names a permission that is there")
	}
	if t.Failed() {
		t.Log(output)
	}
}

func TestStartSaysHowToMakeTheMissingSecret(t *testing.T) {
	i := install(t)
	i.deleteSecret(t)
	output := i.fail(t)
	want := "make it, empty: " + i.restore()
	if !strings.Contains(output, want) {
		t.Errorf("the output lacks %q:\n%s", want, output)
	}
}

// What the roles grant is what the program uses, from its first start to a repaired bundle and an orderly end, and it
// never asks for more.
func TestRequestsOfTheProgramStayWithinItsRoles(t *testing.T) {
	i := install(t)
	mark := i.Audit(t)
	i.installWebhooks(t)
	r := i.start(t)
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, event := range mark.Since(t, cluster.ByAccount(i.name, i.name+"-admission")) {
		if event.Code == 403 {
			t.Errorf("refused: %s", event)
		}
		if event.Resource != "" && event.Resource != "selfsubjectaccessreviews" && event.Verb != "list" {
			used[event.Verb+" "+event.Resource] = true
		}
	}
	// Not used here: get of namespaces and patch of events, which are for a cache that lags and for an event that repeats,
	// and list, which this API server answers within a watch.
	want := map[string]bool{
		"watch namespaces": true, "watch stagesetpolicies": true,
		"get secrets": true, "watch secrets": true, "update secrets": true,
		"watch mutatingwebhookconfigurations": true, "patch mutatingwebhookconfigurations": true,
		"watch validatingwebhookconfigurations": true, "patch validatingwebhookconfigurations": true,
		"get leases": true, "create leases": true, "update leases": true, "create events": true,
	}
	if diff := cmp.Diff(want, used); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

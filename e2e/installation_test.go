package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// The programs, by the names of their accounts.
const (
	programReconciler = "stageset-reconciler"
	programAdmission  = "stageset-admission"
)

// installation is where the product is installed.
type installation struct {
	namespace string
	// watched are the namespaces that it is about; none is all of them.
	watched []string
}

// account makes the account of a program, bound to its generated roles as the chart binds it: to what is in namespaces in
// those that it watches, or in the whole cluster.
func (i installation) account(t testing.TB, c *cluster.Cluster, program string) {
	t.Helper()
	c.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: ServiceAccount, metadata: {name: %s, namespace: %s}}", program, i.namespace))
	c.Apply(t, strings.ReplaceAll(chartFile(t, strings.TrimPrefix(program, "stageset-")+"-rbac.yaml"), system, i.namespace))
	i.bind(t, c, program, "ClusterRole", program, "")
	i.bind(t, c, program, "Role", program, i.namespace)
	inNamespaces := []string{program + "-watched"}
	if program == programReconciler {
		inNamespaces = append(inNamespaces, program+"-tokens")
	}
	for _, role := range inNamespaces {
		if len(i.watched) == 0 {
			i.bind(t, c, program, "ClusterRole", role, "")
		}
		for _, namespace := range i.watched {
			i.bind(t, c, program, "ClusterRole", role, namespace)
		}
	}
}

// install makes another installation, in a namespace of its own, and has no reconciler run in this one until the end of the
// test, which must not be parallel.
func (s *suite) install(t testing.TB, watched ...string) installation {
	t.Helper()
	s.stopReconciler(t)
	i := installation{namespace: s.Namespace(t, "release"), watched: watched}
	for _, program := range []string{programReconciler, programAdmission} {
		i.account(t, s.Cluster, program)
	}
	return i
}

// run runs the reconciler of an installation until the end of the test.
func (i installation) run(t testing.TB, s *suite, args ...string) *process.Process {
	t.Helper()
	return process.Start(t, i.options(t, s, args...))
}

// options are how the reconciler of an installation is run.
func (i installation) options(t testing.TB, s *suite, args ...string) process.Options {
	t.Helper()
	if strings.Contains(strings.Join(args, " "), "--allow-controller-identity=") {
		s.mu.Lock()
		s.itself[i.namespace] = true
		s.mu.Unlock()
	}
	own := []string{
		"--kubeconfig", s.WriteKubeconfig(t, s.TokenConfig(t, i.namespace, programReconciler)), "--namespace", i.namespace,
	}
	return reconcilerOptions(t, s.Cluster, "127.0.0.1", append(own, args...)...)
}

// bind binds the account of a program to a role, in a namespace or, if that is empty, in the whole cluster.
func (i installation) bind(t testing.TB, c *cluster.Cluster, program, kind, role, namespace string) {
	t.Helper()
	binding := "RoleBinding"
	if namespace == "" {
		binding = "ClusterRoleBinding"
	}
	c.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: %[1]s
metadata: {name: %[2]s-%[3]s-%[4]s, namespace: %[5]q}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %[6]s, name: %[4]s}
subjects: [{kind: ServiceAccount, name: %[3]s, namespace: %[2]s}]`, binding, i.namespace, program, role, namespace, kind))
}

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// bareRemote is a tenant with accounts that have no rights, and with what leads to another cluster, where nobody has any
// either: the user of the kubeconfig is "nobody-yet" in the namespace of the tenant's name.
type bareRemote struct {
	*tenant
	there *cluster.Cluster
	user  string
}

func (s *suite) bareRemote(t *testing.T, accounts ...string) *bareRemote {
	t.Helper()
	n := &bareRemote{tenant: s.bareTenant(t), there: otherCluster(t)}
	n.user = "system:serviceaccount:" + n.namespace + ":nobody-yet"
	n.there.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %[1]s}}\n---\n"+
		"{apiVersion: v1, kind: ServiceAccount, metadata: {name: nobody-yet, namespace: %[1]s}}", n.namespace))
	n.kubeconfig(t, "remote", kubeconfigOf(t, n.there.TokenConfig(t, n.namespace, "nobody-yet")))
	for _, account := range accounts {
		n.account(t, account)
	}
	return n
}

// printed is what "stagesetctl rbac" prints for each of the two clusters.
func (n *bareRemote) printed(t *testing.T, spec string, args ...string) (home, target string) {
	t.Helper()
	home = n.printRBAC(t, "app", spec, append([]string{"--cluster", "home"}, args...)...)
	target = n.printRBAC(t, "app", spec, append([]string{
		"--cluster", "target", "--target-kubeconfig", n.there.Kubeconfig, "--target-user", n.user,
	}, args...)...)
	return home, target
}

// change applies a role to the cluster that it was printed for.
func (n *bareRemote) change(t *testing.T, in *cluster.Cluster, role rbacv1.ClusterRole) {
	t.Helper()
	text, err := yaml.Marshal(role)
	if err != nil {
		t.Fatal(err)
	}
	in.Apply(t, string(text))
}

// spec is of two stages with an account each, and one that reads what leads there.
func (n *bareRemote) spec() string {
	return `
retryInterval: 1s
serviceAccountName: reader
kubeConfig: {secretRef: {name: remote}}
stages:
- name: first
  path: first
  serviceAccountName: first
  sourceRef: {kind: GitRepository, name: app}
  readyChecks: {checks: [{apiVersion: v1, kind: ServiceAccount, name: nobody-yet}]}
- {name: second, path: second, serviceAccountName: second, sourceRef: {kind: GitRepository, name: app}}
`
}

// What is printed for the two clusters is all that a release needs in each, and whatever is taken out of it is named before
// anything is written: what reads, and what impersonates, as what nobody may do, and the rest by the preflight, which asks as
// the accounts. The second stage lacks something until the end, so that the release is never complete by accident.
func TestPrintedRolesAreEnoughInTwoClusters(t *testing.T) {
	n := shared(t).bareRemote(t, "reader", "first", "second")
	class := n.namespace + "-class"
	revision := n.source(t, "app", map[string]string{
		"first/all.yaml": documents(configMap("settings", "1"), priorityClass(class)), "second/all.yaml": configMap("last", "1"),
	})
	home, target := n.printed(t, n.spec())
	n.Apply(t, home)
	n.there.Apply(t, target)
	second := role(t, target, "-second")
	n.change(t, n.there, without(second, "configmaps", "create"))
	guard := "stage second: create configmaps in " + n.namespace + " (last)"
	here, there := n.Audit(t), n.there.Audit(t)
	n.stageSet(t, "app", n.spec())
	set := n.wait(t, "app", preflight("False", guard), cluster.Condition(v1.ConditionReady, "False", v1.ReasonPermissionsMissing))
	if want := "roles have to allow it to system:serviceaccount:" + n.namespace + ":second"; !strings.Contains(readyMessage(set), want) {
		t.Errorf("the message lacks %q:\n%s", want, readyMessage(set))
	}
	named := map[string]int{}
	for _, printed := range []struct {
		in   *cluster.Cluster
		text string
	}{{n.Cluster, home}, {n.there, target}} {
		for _, role := range roles(t, printed.text) {
			if role.Name == second.Name && printed.in == n.there {
				continue // it lacks something all the time
			}
			for number, rule := range role.Rules {
				for _, verb := range rule.Verbs {
					named[verb+" "+rule.Resources[0]]++
					n.change(t, printed.in, lacking(role, number, verb))
					n.request(t, "app", fmt.Sprint(role.Name, number, verb))
					n.wait(t, "app", n.names(printed.in == n.there, verb, rule, guard))
					n.change(t, printed.in, role)
				}
			}
		}
	}
	want := map[string]int{
		"get secrets": 1, "get gitrepositories": 2, "impersonate serviceaccounts": 1,
		"get serviceaccounts": 1, "get configmaps": 1, "create configmaps": 1, "patch configmaps": 1, "delete configmaps": 1,
		"get priorityclasses": 1, "create priorityclasses": 1, "patch priorityclasses": 1, "delete priorityclasses": 1,
	}
	if diff := cmp.Diff(want, named); diff != "" {
		t.Errorf("taken out and named (-want +got):\n%s", diff)
	}
	n.wroteNothing(t, here)
	n.askedAsAccounts(t, there)

	n.change(t, n.there, second)
	n.waitReady(t, "app", "app", revision)
	if home, target := n.printed(t, n.spec(), "--missing"); home+target != "" {
		t.Errorf("missing all the same:\n%s%s", home, target)
	}
	n.delete(t, "app")
	n.gone(t, "app")
	n.there.WaitGone(t, n.configMap("settings"))
	n.there.WaitGone(t, cluster.Ref("scheduling.k8s.io/v1", "PriorityClass", "", class))
}

// lacking is a role without a verb of one of its rules.
func lacking(role rbacv1.ClusterRole, number int, verb string) rbacv1.ClusterRole {
	less := *role.DeepCopy()
	rule := &less.Rules[number]
	if rule.Verbs = slices.DeleteFunc(rule.Verbs, func(v string) bool { return v == verb }); len(rule.Verbs) == 0 {
		less.Rules = slices.Delete(less.Rules, number, number+1)
	}
	return less
}

// names holds when the StageSet says that a verb of a rule is missing: what is read here, and what impersonates there, is refused
// by itself, and the rest is in the preflight, beside what is missing all the time.
func (n *bareRemote) names(there bool, verb string, rule rbacv1.PolicyRule, guard string) cluster.Predicate {
	resource := strings.TrimSuffix(rule.Resources[0]+"."+rule.APIGroups[0], ".")
	switch {
	case !there || verb == "impersonate":
		return both(cluster.Condition(v1.ConditionReady, "False", v1.ReasonAccessDenied), messageHas(fmt.Sprintf(
			"grant it %s on %s named %s in namespace %s", verb, resource, rule.ResourceNames[0], n.namespace)))
	case resource == "serviceaccounts":
		resource += " in " + n.namespace + " (" + rule.ResourceNames[0] + ")"
	case len(rule.ResourceNames) > 0:
		resource += " (" + rule.ResourceNames[0] + ")"
	default:
		resource += " in " + n.namespace + " (settings)"
	}
	return preflight("False", "stage first: "+verb+" "+resource, guard)
}

// both holds when two predicates do.
func both(a, b cluster.Predicate) cluster.Predicate {
	return func(object *unstructured.Unstructured) error { return errors.Join(a(object), b(object)) }
}

// askedAsAccounts checks, with the audit log of the other cluster, that what the accounts may do was asked as them, that
// nobody else was impersonated, and that nothing was written.
func (n *bareRemote) askedAsAccounts(t *testing.T, mark cluster.AuditMark) {
	t.Helper()
	reviews := map[string]bool{}
	for _, event := range mark.Since(t, func(e cluster.AuditEvent) bool { return e.User == n.user && e.Impersonated != "" }) {
		if event.Group == "authorization.k8s.io" {
			reviews[event.Impersonated] = true
		}
		if event.Write() && !event.DryRun {
			t.Errorf("written all the same: %v", event)
		}
	}
	account := func(name string) string { return "system:serviceaccount:" + n.namespace + ":" + name }
	if diff := cmp.Diff(map[string]bool{account("first"): true, account("second"): true}, reviews); diff != "" {
		t.Errorf("asked about their permissions, as (-want +got):\n%s", diff)
	}
}

// By a ConfigMap, whoever reads it also has to be allowed to be the account whose token leads there; there, the token's user
// is named as that cluster knows it.
func TestPrintedRolesAreEnoughByTrust(t *testing.T) {
	n := shared(t).bareRemote(t, deployer, "bearer")
	(&remote{tenant: n.tenant, there: n.there}).connection(t, map[string]string{"serviceAccountName": "bearer"})
	n.user = issuedHere + "system:serviceaccount:" + n.namespace + ":bearer"
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	spec := byConnection + oneStage("app")
	home, target := n.printed(t, spec)
	reader := role(t, home, "-app")
	at := slices.IndexFunc(reader.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Verbs, "impersonate") })
	if at < 0 {
		t.Fatalf("the token of another account is not asked for:\n%s", home)
	}
	n.Apply(t, home)
	n.there.Apply(t, target)
	n.change(t, n.Cluster, lacking(reader, at, "impersonate"))
	n.stageSet(t, "app", spec)
	n.wait(t, "app", n.names(false, "impersonate", reader.Rules[at], ""))
	n.change(t, n.Cluster, reader)
	n.waitReady(t, "app", "app", revision)
	n.there.WaitFor(t, n.configMap("a"))
}

// What no account is named for is done by the installation's default account, by the reconciler where that is allowed, and on
// another cluster by the kubeconfig's user: what is printed is for these then.
func TestPrintedRolesWithoutAnAccount(t *testing.T) {
	s := setup(t)
	n := s.bareRemote(t)
	i := s.install(t, n.namespace)
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	nobodys := strings.Replace(oneStage("app"), "serviceAccountName: "+deployer, "", 1)
	watch := "--watch-namespaces=" + n.namespace
	as := func(name string, args ...string) {
		n.Apply(t, n.printRBAC(t, name, nobodys, args...))
		n.stageSet(t, name, nobodys)
		n.waitReady(t, name, "app", revision)
		n.hasValue(t, "a", "1")
		n.delete(t, name)
		n.gone(t, name)
	}

	reconciler := i.run(t, s, watch, "--allow-controller-identity="+n.namespace)
	own := i.namespace + "/" + programReconciler
	as("own", "--reconciler", own)
	home, target := n.printed(t, toOtherAsNobody("app", "remote"), "--reconciler", own)
	n.Apply(t, home)
	n.there.Apply(t, target)
	n.stageSet(t, "app", toOtherAsNobody("app", "remote"))
	n.waitReady(t, "app", "app", revision)
	n.there.WaitFor(t, n.configMap("a"))
	n.delete(t, "app")
	n.gone(t, "app")
	if err := reconciler.Stop(); err != nil {
		t.Fatal(err)
	}

	n.account(t, deployer)
	i.run(t, s, watch, "--default-service-account="+deployer)
	as("default", "--default-service-account", deployer)
}

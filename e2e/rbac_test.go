package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// printRBAC is what "stagesetctl rbac" prints, as the administrator, about a StageSet that is not in the cluster.
func (n *tenant) printRBAC(t *testing.T, name, spec string, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stageset.yaml")
	if err := os.WriteFile(file, []byte(n.stageSetYAML(t, name, spec)), 0o600); err != nil {
		t.Fatal(err)
	}
	return stagesetctl(t, append([]string{"rbac", "--kubeconfig", n.Kubeconfig, "--filename", file}, args...)...)
}

// stagesetctl runs the program, and returns what it prints.
func stagesetctl(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr strings.Builder
	command := exec.CommandContext(t.Context(), binary(t, "stagesetctl"), args...)
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	return stdout.String()
}

// grantPrinted applies what "stagesetctl rbac" has printed, and takes away at the end what is in no namespace.
func (n *tenant) grantPrinted(t *testing.T, printed string) {
	t.Helper()
	if printed == "" {
		t.Fatal("nothing is printed")
	}
	n.Apply(t, printed)
	for _, role := range roles(t, printed) {
		if role.Namespace == "" {
			for _, kind := range []string{"ClusterRole", "ClusterRoleBinding"} {
				n.deleteAfter(t, cluster.Ref(rbacv1.SchemeGroupVersion.String(), kind, "", role.Name))
			}
		}
	}
}

// roles are the Roles and ClusterRoles in what was printed.
func roles(t *testing.T, printed string) []rbacv1.ClusterRole {
	t.Helper()
	var found []rbacv1.ClusterRole
	for document := range strings.SplitSeq(printed, "---\n") {
		var role rbacv1.ClusterRole // a Role has nothing else
		if err := yaml.UnmarshalStrict([]byte(document), &role); err == nil && strings.HasSuffix(role.Kind, "Role") {
			found = append(found, role)
		}
	}
	return found
}

// preflight holds when the condition Preflight has the status, and its message has all lines, which "; " separates, and no
// other.
func preflight(status string, lines ...string) cluster.Predicate {
	return func(object *unstructured.Unstructured) error {
		set := &v1.StageSet{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, set); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(set.Status.Conditions, v1.ConditionPreflight)
		if condition == nil || string(condition.Status) != status {
			return fmt.Errorf("the condition Preflight is %v, want status %s", condition, status)
		}
		got := strings.Split(condition.Message, "; ")
		got = slices.DeleteFunc(got, func(line string) bool { return strings.HasPrefix(line, "roles have to allow it to ") })
		if status == "False" && !slices.Equal(got, lines) {
			return fmt.Errorf("it lacks\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
		}
		return nil
	}
}

// sharedOut is a release of two stages with an account each, in two namespaces and in none.
type sharedOut struct {
	*tenant
	other, class string
	revision     string
}

func (n *tenant) sharedOut(t *testing.T) sharedOut {
	t.Helper()
	s := sharedOut{tenant: n, other: n.Namespace(t, "other"), class: n.namespace + "-class"}
	n.account(t, deployer)
	n.account(t, "second")
	n.applyIn(t, configMap("values", "1"))
	s.revision = n.source(t, "app", map[string]string{
		"one/all.yaml": documents(configMap("settings", "${value}"), deployment("web", "1"),
			"apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {password: not-a-real-one}\n"),
		"two/all.yaml": documents(configMap("more", "1"), priorityClass(s.class)),
	})
	n.deleteAfter(t, cluster.Ref("scheduling.k8s.io/v1", "PriorityClass", "", s.class))
	return s
}

func (s sharedOut) spec() string {
	return fmt.Sprintf(`
retryInterval: 1s
serviceAccountName: %s
stages:
- name: one
  path: one
  sourceRef: {kind: GitRepository, name: app}
  postBuild: {substituteFrom: [{kind: ConfigMap, name: values}]}
- name: two
  path: two
  serviceAccountName: second
  targetNamespace: %s
  sourceRef: {kind: GitRepository, name: app}
`, deployer, s.other)
}

// Without any right of its own, an account with what is printed releases; and what is printed is all that is ever asked for.
func TestPrintedRolesAreEnough(t *testing.T) {
	s := shared(t).bareTenant(t).sharedOut(t)
	mark := s.Audit(t)
	s.grantPrinted(t, s.printRBAC(t, "app", s.spec()))
	s.stageSet(t, "app", s.spec())
	s.waitReady(t, "app", "app", s.revision)
	s.wait(t, "app", preflight("True"))
	for _, account := range []string{deployer, "second"} {
		refused := mark.Since(t, s.by(account), func(e cluster.AuditEvent) bool { return e.Code == 403 && e.Verb != "list" })
		if len(refused) > 0 {
			t.Errorf("%s was refused: %v", account, refused)
		}
	}
	if left := s.printRBAC(t, "app", s.spec(), "--missing"); left != "" {
		t.Errorf("missing all the same:\n%s", left)
	}
	s.delete(t, "app")
	s.WaitGone(t, cluster.Ref("scheduling.k8s.io/v1", "PriorityClass", "", s.class))
	s.WaitGone(t, cluster.Ref(v1.GroupVersion.String(), "StageSet", s.namespace, "app"))
}

// Whatever is taken out of what is printed, the preflight names just that, beside whatever else is missing, and nothing is
// written. The third stage lacks something until the end, so that the release is never complete by accident.
func TestEachMissingPermissionIsNamed(t *testing.T) {
	n := shared(t).bareTenant(t)
	other, class := n.Namespace(t, "other"), n.namespace+"-class"
	for _, account := range []string{"first", "second", "third"} {
		n.account(t, account)
	}
	revision := n.source(t, "app", map[string]string{
		"first/all.yaml":  documents(configMap("settings", "1"), deployment("web", "1")),
		"second/all.yaml": documents(configMap("more", "1"), priorityClass(class)),
		"third/all.yaml":  configMap("last", "1"),
	})
	n.deleteAfter(t, cluster.Ref("scheduling.k8s.io/v1", "PriorityClass", "", class))
	spec := fmt.Sprintf(`
retryInterval: 1s
stages:
- {name: first, path: first, serviceAccountName: first, sourceRef: {kind: GitRepository, name: app}}
- {name: second, path: second, serviceAccountName: second, sourceRef: {kind: GitRepository, name: app}, targetNamespace: %s}
- {name: third, path: third, serviceAccountName: third, sourceRef: {kind: GitRepository, name: app}}
`, other)
	printed := n.printRBAC(t, "app", spec)
	n.grantPrinted(t, printed)
	n.applyRole(t, without(role(t, printed, "-third"), "configmaps", "create"))
	guard := "stage third: create configmaps in " + n.namespace + " (last)"
	mark := n.Audit(t)
	n.stageSet(t, "app", spec)
	n.wait(t, "app", preflight("False", guard))
	for number, lack := range []struct{ account, resource, text string }{
		{"first", "configmaps", "configmaps in " + n.namespace + " (settings)"},
		{"first", "deployments", "deployments.apps in " + n.namespace + " (web)"},
		{"second", "configmaps", "configmaps in " + other + " (more)"},
		{"second", "priorityclasses", "priorityclasses.scheduling.k8s.io (" + class + ")"},
	} {
		for _, verb := range []string{"get", "create", "patch", "delete"} {
			taken := 0
			for _, complete := range roles(t, printed) {
				if !strings.HasSuffix(complete.Name, "-"+lack.account) {
					continue
				}
				lacking := without(complete, lack.resource, verb)
				if equality.Semantic.DeepEqual(lacking, complete) {
					continue // it is another role of the account
				}
				taken++
				n.applyRole(t, lacking)
				n.request(t, "app", fmt.Sprint(verb, number))
				n.wait(t, "app", preflight("False", "stage "+lack.account+": "+verb+" "+lack.text, guard))
				n.applyRole(t, complete)
			}
			if taken != 1 {
				t.Errorf("%s %s is in %d of the roles that are printed, want one", verb, lack.text, taken)
			}
		}
	}
	n.wroteNothing(t, mark)
	n.applyRole(t, role(t, printed, "-third"))
	n.waitReady(t, "app", "app", revision)
}

func priorityClass(name string) string {
	return "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: " + name + "}\nvalue: 1\n"
}

// role is the only role in what was printed whose name ends like that.
func role(t *testing.T, printed, suffix string) rbacv1.ClusterRole {
	t.Helper()
	found := slices.DeleteFunc(roles(t, printed), func(role rbacv1.ClusterRole) bool {
		return !strings.HasSuffix(role.Name, suffix)
	})
	if len(found) != 1 {
		t.Fatalf("%d roles end in %s, want one", len(found), suffix)
	}
	return found[0]
}

// without is a role without a verb of a resource; the rule about what is only read stays as it is.
func without(role rbacv1.ClusterRole, resource, verb string) rbacv1.ClusterRole {
	lacking := *role.DeepCopy()
	lacking.Rules = nil
	for _, rule := range role.Rules {
		if !slices.Contains(rule.Resources, resource) || !slices.Contains(rule.Verbs, "patch") {
			lacking.Rules = append(lacking.Rules, rule)
			continue
		}
		others, less := *rule.DeepCopy(), *rule.DeepCopy()
		others.Resources = slices.DeleteFunc(others.Resources, func(r string) bool { return r == resource })
		less.Resources = []string{resource}
		less.Verbs = slices.DeleteFunc(less.Verbs, func(v string) bool { return v == verb })
		if lacking.Rules = append(lacking.Rules, less); len(others.Resources) > 0 {
			lacking.Rules = append(lacking.Rules, others)
		}
	}
	return lacking
}

// applyRole applies a Role, or, without a namespace, a ClusterRole.
func (n *tenant) applyRole(t *testing.T, role rbacv1.ClusterRole) {
	t.Helper()
	text, err := yaml.Marshal(role)
	if err != nil {
		t.Fatal(err)
	}
	n.Apply(t, string(text))
}

// T-12, T-63: a release that brings its namespace, definition, account, role and binding needs what is printed, and no more.
func TestPrintedRolesAreEnoughForAReleaseThatBringsEverything(t *testing.T) {
	n := shared(t).bareTenant(t)
	n.account(t, deployer)
	gadget := gadgetKind{group: n.namespace + ".example.com"}
	home := n.namespace + "-home"
	in := func(manifest string) string {
		return strings.Replace(manifest, "metadata: {", "metadata: {namespace: "+home+", ", 1)
	}
	revision := n.source(t, "app", map[string]string{
		"one/all.yaml": documents(
			"apiVersion: v1\nkind: Namespace\nmetadata: {name: "+home+"}\n", gadget.definition(),
			"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web}\n",
			in("apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: web}\n"+
				"rules: [{apiGroups: [\"\"], resources: [pods, pods/log], verbs: [get]}]\n"),
			in("apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: web}\n"+
				"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: web}\n"+
				"subjects: [{kind: ServiceAccount, name: web, namespace: "+n.namespace+"}]\n"),
			in("apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: view}\n"+
				"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\n"+
				"subjects: [{kind: ServiceAccount, name: web, namespace: "+n.namespace+"}]\n"),
		),
		"two/all.yaml": documents(in(gadget.manifest("one")), in(configMap("settings", "1"))),
	})
	n.deleteAfter(t, cluster.Ref("v1", "Namespace", "", home))
	n.deleteAfter(t, gadget.definitionRef())
	n.grantPrinted(t, n.printRBAC(t, "app", twoStages("app")))
	n.stageSet(t, "app", twoStages("app"))
	n.condition(t, gadget.ref(home, "one"), "Ready", "True", "Wound", "it ticks")
	n.waitReady(t, "app", "app", revision)
}

// What an earlier stage gives is no lack; and if that is not enough, it is said before the stage that needs it.
func TestRightsThatAReleaseGivesItself(t *testing.T) {
	n := shared(t).bareTenant(t)
	n.account(t, deployer)
	n.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: grants, namespace: %s}
rules:
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, create, patch, delete, escalate, bind]
- {apiGroups: [source.toolkit.fluxcd.io], resources: [gitrepositories], verbs: [get]}`, n.namespace))
	n.grant(t, n.namespace, deployer, "Role", "grants")
	gives := func(verbs string) map[string]string {
		return map[string]string{
			"one/rights.yaml": documents(
				"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: writer}\n"+
					"rules: [{apiGroups: [\"\"], resources: [configmaps], verbs: ["+verbs+"]}]\n",
				"apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: writer}\n"+
					"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: writer}\n"+
					"subjects: [{kind: Group, name: 'system:serviceaccounts:"+n.namespace+"', apiGroup: rbac.authorization.k8s.io}]\n"),
			"two/all.yaml": documents(configMap("a", "1"), configMap("b", "1")),
		}
	}
	n.source(t, "app", gives("get, patch, delete"))
	mark := n.Audit(t)
	n.stageSet(t, "app", "retryInterval: 1s"+twoStages("app"))
	n.wait(t, "app", preflight("False", "stage two: create configmaps in "+n.namespace+" (a, b)"))
	written := n.written(t, mark, deployer)
	slices.Sort(written)
	if diff := cmp.Diff([]string{"patch rolebindings/writer", "patch roles/writer"}, written); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
	// The role changes, its binding does not.
	revision := n.source(t, "app", gives("get, create, patch, delete"))
	n.waitReady(t, "app", "app", revision)
	n.wait(t, "app", preflight("True"))
}

// Roles of every form count as the API server reads them: by name, by star, and by what exists already.
func TestRolesOfEveryForm(t *testing.T) {
	cases := map[string]struct{ rules, want string }{
		"all verbs of everything": {rules: `{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}`},
		"by name": {
			rules: `{apiGroups: [""], resources: [configmaps], resourceNames: [a, b], verbs: [get, create, patch, delete]}`,
		},
		"one by name": {
			rules: `{apiGroups: [""], resources: [configmaps], resourceNames: [b], verbs: [get, create, patch, delete]}`,
			want:  "get, create, patch, delete configmaps in NAMESPACE (a)",
		},
		"no create, of what exists": {
			rules: `{apiGroups: [""], resources: [configmaps], verbs: [get, patch, delete]}`,
			want:  "create configmaps in NAMESPACE (b)",
		},
		"only what a subresource is": {
			rules: `{apiGroups: [""], resources: [configmaps/status], verbs: ["*"]}`,
			want:  "get, create, patch, delete configmaps in NAMESPACE (a, b)",
		},
	}
	s := shared(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := s.bareTenant(t)
			n.account(t, deployer)
			n.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: form, namespace: %s}
rules:
- {apiGroups: [source.toolkit.fluxcd.io], resources: [gitrepositories], verbs: [get]}
- %s`, n.namespace, tc.rules))
			n.grant(t, n.namespace, deployer, "Role", "form")
			n.applyIn(t, configMap("a", "theirs"))
			revision := n.source(t, "app", map[string]string{"all.yaml": documents(configMap("a", "1"), configMap("b", "1"))})
			n.stageSet(t, "app", oneStage("app"))
			if tc.want == "" {
				n.waitReady(t, "app", "app", revision)
				return
			}
			n.wait(t, "app", preflight("False", "stage app: "+strings.ReplaceAll(tc.want, "NAMESPACE", n.namespace)),
				cluster.Condition(v1.ConditionReady, "False", v1.ReasonPermissionsMissing))
			n.hasValue(t, "a", "theirs")
		})
	}
}

// With --missing, what the account has is not printed.
func TestMissingRolesOnly(t *testing.T) {
	s := shared(t).bareTenant(t).sharedOut(t)
	s.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: some, namespace: %s}
rules:
- {apiGroups: [""], resources: [configmaps, secrets], verbs: [get, create, patch, delete]}
- {apiGroups: [source.toolkit.fluxcd.io], resources: [gitrepositories], verbs: ["*"]}`, s.namespace))
	s.grant(t, s.namespace, deployer, "Role", "some")
	s.grant(t, s.namespace, "second", "Role", "some")
	cluster.Eventually(t, func(context.Context) error { // the API server's own cache of roles
		printed := s.printRBAC(t, "app", s.spec(), "--missing", "--as-role", "rest")
		var got []string
		for _, role := range roles(t, printed) {
			for _, rule := range role.Rules {
				got = append(got, fmt.Sprintf("%s %s: %v %v %v", role.Kind, role.Name, rule.Verbs, rule.Resources, rule.ResourceNames))
			}
		}
		want := []string{
			"Role rest-deployer: [get create patch delete] [deployments] []",
			"ClusterRole rest-second: [get create patch delete] [priorityclasses] [" + s.class + "]",
			"Role rest-second: [get create patch delete] [configmaps] []",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("rules (-want +got):\n%s", diff)
		}
		return nil
	})
	s.grantPrinted(t, s.printRBAC(t, "app", s.spec(), "--missing", "--as-role", "rest"))
	s.stageSet(t, "app", s.spec())
	s.waitReady(t, "app", "app", s.revision)
}

// A release costs one question for each account and namespace, and a pass in which nothing has changed none.
func TestPreflightAsksOnce(t *testing.T) {
	n := shared(t).tenant(t)
	var manifests []string
	for number := range 20 {
		manifests = append(manifests, configMap(fmt.Sprintf("map-%d", number), "1"))
	}
	revision := n.source(t, "app", map[string]string{"one/a.yaml": documents(manifests...), "two/b.yaml": configMap("b", "1")})
	questions := func(e cluster.AuditEvent) bool { return e.Group == "authorization.k8s.io" }
	mark := n.Audit(t)
	n.stageSet(t, "app", twoStages("app"))
	n.waitReady(t, "app", "app", revision)
	if asked := mark.Since(t, n.by(deployer), questions); len(asked) != 1 {
		t.Errorf("asked %v, want one question", asked)
	}
	mark = n.Audit(t)
	n.pass(t, "app", "idle")
	if asked := mark.Since(t, n.by(deployer), questions); len(asked) != 0 {
		t.Errorf("asked %v, want nothing", asked)
	}
}

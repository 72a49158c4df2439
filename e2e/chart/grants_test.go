package chart_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stageset/stageset/api/crds"
	"github.com/stageset/stageset/e2e/cluster"
)

// T-18, in the modes that grant something else than the default, which TestLifeOfARelease looks at. The reconciler of single
// tenants may do everything.
func TestGrantsOfModes(t *testing.T) {
	cluster.Shared(t).InstallCRDs(t, crds.FS)
	for mode, test := range map[string]struct {
		values     string // with the tenant's namespace
		components []string
	}{
		"single":   {"rbac: {clusterAdmin: true} # %s", []string{"admission"}},
		"watched":  {"controller: {watchNamespaces: [%s]}", components},
		"accounts": {"rbac: {tokenRequest: {namespaces: [%s]}}", components},
		"confined": {"controller: {noCrossNamespaceRefs: true} # %s", components},
	} {
		t.Run(mode, func(t *testing.T) {
			r := prepare(t, mode, "crds: {install: false}")
			n := r.tenant(t)
			r.values = append(r.values, valuesFile(t, asksForLists), valuesFile(t, fmt.Sprintf(test.values, n.namespace)))
			mark := r.Audit(t)
			r.install(t)
			r.route(t)
			r.start(t, "admission")
			r.start(t, "reconciler")
			n.checkGrants(t, mark, test.components...)
		})
	}
}

// components are what the chart has accounts for.
var components = []string{"admission", "reconciler"}

// grant is one thing that an account may do.
type grant struct{ verb, group, resource, namespace, name string }

func (g grant) String() string {
	text := strings.TrimSpace(g.verb + " " + strings.Trim(g.resource+"."+g.group, ".") + " " + g.name)
	if g.namespace != "" {
		text += " in " + g.namespace
	}
	return text
}

// covers says whether the grant is what a request needed.
func (g grant) covers(event cluster.AuditEvent) bool {
	return g.verb == event.Verb && g.group == event.Group &&
		g.resource == strings.TrimSuffix(event.Resource+"/"+event.Subresource, "/") &&
		(g.namespace == "" || g.namespace == event.Namespace) && (g.name == "" || g.name == event.Name)
}

// grants is everything that bindings of the cluster give to an account of the release.
func (r *release) grants(t *testing.T, component string) []grant {
	t.Helper()
	var clusterBindings rbacv1.ClusterRoleBindingList
	var bindings rbacv1.RoleBindingList
	for _, err := range []error{r.client.List(t.Context(), &clusterBindings), r.client.List(t.Context(), &bindings)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	subject := rbacv1.Subject{Kind: "ServiceAccount", Namespace: r.namespace, Name: r.name + "-" + component}
	var granted []grant
	for _, binding := range clusterBindings.Items {
		if slices.Contains(binding.Subjects, subject) {
			granted = append(granted, r.rules(t, binding.RoleRef, "")...)
		}
	}
	for _, binding := range bindings.Items {
		if slices.Contains(binding.Subjects, subject) {
			granted = append(granted, r.rules(t, binding.RoleRef, binding.Namespace)...)
		}
	}
	return granted
}

// rules are those of a role, which is bound in a namespace or, if that is empty, in the cluster.
func (r *release) rules(t *testing.T, role rbacv1.RoleRef, namespace string) []grant {
	t.Helper()
	var rules []rbacv1.PolicyRule
	var err error
	if role.Kind == "Role" {
		var found rbacv1.Role
		err = r.client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: role.Name}, &found)
		rules = found.Rules
	} else {
		var found rbacv1.ClusterRole
		err = r.client.Get(t.Context(), types.NamespacedName{Name: role.Name}, &found)
		rules = found.Rules
	}
	if err != nil {
		t.Fatal(err)
	}
	var granted []grant
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						granted = append(granted, grant{verb, group, resource, namespace, name})
					}
				}
			}
		}
	}
	return granted
}

// checkGrants compares, in both directions, what the chart grants with what the programs have done since the mark.
func (n *tenant) checkGrants(t *testing.T, mark cluster.AuditMark, components ...string) {
	n.useGrants(t)
	for _, component := range components {
		granted := n.grants(t, component)
		if len(granted) == 0 {
			t.Fatalf("%s has no rights at all", component)
		}
		account := cluster.ByAccount(n.release.namespace, n.name+"-"+component)
		cluster.Eventually(t, func(context.Context) error { // what a program does when it has time to
			return unused(component, granted, mark.Since(t, account))
		})
		for _, event := range mark.Since(t, account) {
			// What everybody may do: discovery, and asking what one may do oneself.
			everybodys := event.Resource == "" || strings.HasPrefix(event.Resource, "selfsubject")
			if !everybodys && !slices.ContainsFunc(granted, func(g grant) bool { return g.covers(event) }) {
				t.Errorf("%s does what the chart does not grant: %s", component, event)
			}
		}
	}
}

// unused says which of the grants no request needed, but for what is rare.
func unused(component string, granted []grant, events []cluster.AuditEvent) error {
	var idle []error
	for _, g := range granted {
		if rare[component+" "+g.verb+" "+g.resource] == "" && !slices.ContainsFunc(events, g.covers) {
			idle = append(idle, fmt.Errorf("%s never uses what the chart grants: %s", component, g))
		}
	}
	return errors.Join(idle...)
}

// rare is what a test cannot make happen at will, with when it does.
var rare = map[string]string{
	"admission get configmaps":  "a parameter that is not watched yet",
	"admission get namespaces":  "a StageSet in a namespace that is younger than the cache",
	"admission patch events":    "the same leader again, soon",
	"reconciler get configmaps": "a parameter that is not watched yet",
	"reconciler patch events":   "the same event again, soon; and the same leader",
}

// useGrants has the programs do what they do seldom: a policy with a parameter, a deletion.
func (n *tenant) useGrants(t *testing.T) {
	t.Helper()
	n.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: limits, namespace: %[1]s}
data: {stages: "3"}
---
apiVersion: stages.metio.wtf/v1alpha1
kind: StageSetPolicy
metadata: {name: few-stages}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  paramRef: {name: limits, namespace: %[1]s, parameterNotFoundAction: Deny}
  validations:
  - name: few
    expression: object.spec.stages.size() <= int(params.data.stages)
    message: too many stages`, n.release.namespace))
	policy := cluster.Ref("stages.metio.wtf/v1alpha1", "StageSetPolicy", "", "few-stages")
	t.Cleanup(func() {
		if err := n.client.Delete(uncancelled{t}.Context(), policy); err != nil {
			t.Error(err)
		}
	})
	n.WaitFor(t, policy, func(live *unstructured.Unstructured) error {
		if installations, _, err := unstructured.NestedSlice(live.Object, "status", "installations"); len(installations) == 0 {
			return fmt.Errorf("stageset-admission says nothing of it yet (%v)", err)
		}
		return nil
	})
	brief := n.stageSet("brief")
	n.create(t, brief)
	n.ready(t, brief, n.commit(t, "brief", "1"))
	n.delete(t, brief)
}

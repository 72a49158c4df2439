package chart_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stageset/stageset/api/crds"
	"github.com/stageset/stageset/e2e/cluster"
)

// Two releases with disjoint lists of namespaces share a cluster: names do not collide, and neither touches what is the
// other's.
func TestReleasesSideBySide(t *testing.T) {
	cluster.Shared(t).InstallCRDs(t, crds.FS)
	mark := cluster.Shared(t).Audit(t)
	left, right := side(t, "left"), side(t, "right")
	for _, n := range []*tenant{left, right} {
		app := n.stageSet("app")
		revision := n.commit(t, "app", n.name)
		n.create(t, app)
		n.ready(t, app, revision)

		nobody := n.stageSet("nobody")
		delete(nobody.Object["spec"].(map[string]any), "serviceAccountName")
		err := n.client.Create(t.Context(), nobody)
		if err == nil || strings.Count(err.Error(), "service-account-required/stages: ") != 1 {
			t.Errorf("%s: got %v, want a refusal by one of the releases", n.name, err)
		}
	}
	for n, other := range map[*tenant]*tenant{left: right, right: left} {
		own := mark.Since(t, cluster.ByAccount(n.release.namespace, n.name+"-reconciler"), cluster.InNamespace(n.namespace))
		if !slices.ContainsFunc(own, func(e cluster.AuditEvent) bool { return e.Resource == "stageinventories" && e.Write() }) {
			t.Errorf("%s has written no inventory in its own namespace", n.name)
		}
		for _, component := range []string{"admission", "reconciler"} {
			account := cluster.ByAccount(n.release.namespace, n.name+"-"+component)
			for _, event := range mark.Since(t, account, cluster.InNamespace(other.namespace)) {
				t.Errorf("%s is not about namespace %s: %s", n.name, other.namespace, event)
			}
		}
	}
}

// side is a release that watches the namespace of one tenant alone, with its programs.
func side(t *testing.T, name string) *tenant {
	t.Helper()
	r := prepare(t, name, "crds: {install: false}")
	n := r.tenant(t)
	r.values = append(r.values, valuesFile(t, fmt.Sprintf("controller: {watchNamespaces: [%s]}", n.namespace)))
	r.install(t)
	r.route(t)
	r.start(t, "admission")
	r.start(t, "reconciler")
	return n
}

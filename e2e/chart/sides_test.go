package chart_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stageset/stageset/api/crds"
	"github.com/stageset/stageset/e2e/cluster"
)

// Two releases with disjoint lists of namespaces share a cluster: names do not collide, and neither touches what is the other's.
func TestReleasesSideBySide(t *testing.T) {
	cluster.Shared(t).InstallCRDs(t, crds.FS)
	sides := map[string]*tenant{}
	for _, name := range []string{"left", "right"} {
		r := prepare(t, name, "crds: {install: false}")
		n := r.tenant(t)
		r.values = append(r.values, valuesFile(t, fmt.Sprintf("controller: {watchNamespaces: [%s]}", n.namespace)))
		sides[name] = n
	}
	mark := cluster.Shared(t).Audit(t)
	for _, n := range sides {
		n.install(t)
		n.route(t)
		n.start(t, "admission")
		n.start(t, "reconciler")
	}
	for name, n := range sides {
		app := n.stageSet("app")
		revision := n.commit(t, "app", name)
		n.create(t, app)
		n.ready(t, app, revision)
		mustAct := false
		for other, o := range sides {
			if other == name {
				continue
			}
			for _, component := range []string{"admission", "reconciler"} {
				events := mark.Since(t, cluster.ByAccount(o.release.namespace, other+"-"+component), cluster.InNamespace(n.namespace))
				for _, event := range events {
					t.Errorf("%s is not about namespace %s: %s", other, n.namespace, event)
				}
			}
		}
		for _, event := range mark.Since(t, cluster.ByAccount(n.release.namespace, name+"-reconciler"), cluster.InNamespace(n.namespace)) {
			mustAct = mustAct || event.Resource == "stageinventories" && event.Write()
		}
		if !mustAct {
			t.Errorf("%s has written no inventory in its own namespace", name)
		}
	}
	for name, n := range sides {
		nobody := n.stageSet("nobody")
		delete(nobody.Object["spec"].(map[string]any), "serviceAccountName")
		err := n.client.Create(t.Context(), nobody)
		if err == nil || strings.Count(err.Error(), "service-account-required/stages: ") != 1 {
			t.Errorf("%s: got %v, want a refusal by one of the releases", name, err)
		}
	}
}

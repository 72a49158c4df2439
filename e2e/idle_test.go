package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// A pass in which nothing has changed makes one request for each source, each dependency, and each kind in each namespace,
// however many objects and stages there are, and writes nothing but that it was asked for.
func TestIdlePassMakesFewRequests(t *testing.T) {
	n := shared(t).tenant(t)
	files := map[string]string{"base/a.yaml": configMap("base", "1")}
	for i := range 10 {
		name := fmt.Sprintf("c%d", i)
		files["one/"+name+".yaml"] = configMap(name, "1")
		files["two/"+name+".yaml"] = "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + "}\nspec: {ports: [{port: 80}]}\n"
	}
	revision := n.source(t, "app", files)
	n.stageSet(t, "base", dependent("base"))
	n.waitReady(t, "base", "app", revision)
	n.stageSet(t, "app", "dependsOn: [{name: base}]"+twoStages("app"))
	n.waitReady(t, "app", "app", revision)
	n.request(t, "app", "first") // what the passes of the release itself have asked for is not counted
	n.wait(t, "app", handled("first"), cluster.Condition(v1.ConditionReady, "True", v1.ReasonSucceeded))

	mark := n.Audit(t)
	n.request(t, "app", "idle")
	n.wait(t, "app", handled("idle"), cluster.Condition(v1.ConditionReady, "True", v1.ReasonSucceeded))
	var got []string
	for _, event := range mark.Since(t, n.by(deployer)) {
		got = append(got, event.Verb+" "+event.Resource)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"get gitrepositories", "get stagesets", "list configmaps", "list services"}, got); diff != "" {
		t.Errorf("requests as the tenant (-want +got):\n%s", diff)
	}
}

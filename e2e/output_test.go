package e2e

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// What somebody sees who knows Flux and looks with kubectl: which release is where, what it waits for, what is wrong with
// it, and what still runs.
func TestKubectlTellsHowReleasesAre(t *testing.T) {
	n := shared(t).tenant(t)
	first := n.source(t, "app", map[string]string{
		"one/web.yaml": heldDeployment("web", "1"), "two/settings.yaml": configMap("settings", "1"),
	})
	n.stageSet(t, "app", twoStages("app"))
	n.stageSet(t, "refused", "stages: [{name: app, sourceRef: {kind: GitRepository, name: app}}]")
	n.stageSet(t, "sourceless", oneStage("absent"))
	n.waitRefused(t, "refused", v1.ReasonPolicyViolation)
	n.waitRefused(t, "sourceless", v1.ReasonSourceNotFound)
	n.wait(t, "app", phase("one", v1.StageVerifying))
	header := []string{"NAME", "READY", "REASON", "STAGE", "REVISION", "AGE"}
	n.kubectlGets(t, "sset", [][]string{
		header,
		{"app", "Unknown", "Progressing", "one", "", age},
		{"refused", "False", "PolicyViolation", "", "", age},
		{"sourceless", "False", "SourceNotFound", "app", "", age},
	})

	n.releasePods(t, cluster.Ref("apps/v1", "Deployment", n.namespace, "web"), "Available")
	ready := n.waitReady(t, "app", "app", first)
	running := ready.Status.Revision
	n.kubectlGets(t, "sset/app", [][]string{header, {"app", "True", "Succeeded", "", running, age}})
	n.kubectlGets(t, "sinv", [][]string{
		{"NAME", "STAGESET", "STAGE", "ACCOUNT", "AGE"},
		{"app.one", "app", "one", deployer, age},
		{"app.two", "app", "two", deployer, age},
	})

	n.source(t, "app", map[string]string{
		"one/web.yaml": "kind: Deployment\n\tkind: [", "two/settings.yaml": configMap("settings", "2"),
	})
	broken := readyMessage(n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonBuildFailed)))
	n.kubectlGets(t, "sset/app", [][]string{header, {"app", "False", "BuildFailed", "one", running, age}})
	n.kubectlGets(t, "sset/app -o wide", [][]string{
		append(slices.Clone(header), "MESSAGE", "ACCOUNT"),
		{"app", "False", "BuildFailed", "one", running, age, broken, deployer},
	})
	if prefix, suffix := "stage one, as ServiceAccount "+n.namespace+"/"+deployer+": one/web.yaml:2: ",
		"; still running "+running; !strings.HasPrefix(broken, prefix) || !strings.HasSuffix(broken, suffix) {
		t.Errorf("the message is %q, want it to be %s…%s", broken, prefix, suffix)
	}
	n.waitEvent(t, "app", "Normal", v1.ReasonSucceeded, "applied and healthy")
	n.waitEvent(t, "app", "Warning", v1.ReasonBuildFailed, broken)
	n.kubectlDescribes(t, "sset/app",
		`Reason: +BuildFailed\n +Status: +False\n +Type: +Ready\n`,
		`Reason: +BuildFailed\n +Status: +True\n +Type: +Stalled\n`,
		`Message: +`+regexp.QuoteMeta(broken)+`\n`,
		`Name: +one\n +Objects: +1\n +Phase: +Ready\n`,
		`Normal +Succeeded +\S+ +stageset-reconciler +2 objects in 2 stages are applied and healthy at \S+\n`,
		`Warning +BuildFailed +\S+ +stageset-reconciler +`+regexp.QuoteMeta(broken)+`\n`,
	)
}

// age stands for any age in a table.
const age = "<age>"

var (
	column = regexp.MustCompile(`\S+ *`)
	anyAge = regexp.MustCompile(`^\d+[smh](\d+s)?$`)
	suffix = regexp.MustCompile(`\.[0-9a-f]{8}-\d+$`)
)

// kubectlGets checks the table that kubectl get prints, cell by cell. Names lose the suffix that makes them unique.
func (n *tenant) kubectlGets(t *testing.T, what string, want [][]string) {
	t.Helper()
	output, err := n.kubectl(t, "", append([]string{"get", "-n", n.namespace}, strings.Fields(what)...)...)
	if err != nil {
		t.Fatalf("kubectl get %s: %v\n%s", what, err, output)
	}
	lines := strings.Split(strings.TrimRight(output, "\n"), "\n")
	columns := column.FindAllStringIndex(lines[0], -1)
	var table [][]string
	for _, line := range lines {
		var cells []string
		for i, at := range columns {
			end := len(line)
			if i < len(columns)-1 {
				end = min(at[1], end)
			}
			cell := strings.TrimSpace(line[min(at[0], end):end])
			if anyAge.MatchString(cell) {
				cell = age
			}
			cells = append(cells, suffix.ReplaceAllString(cell, ""))
		}
		table = append(table, cells)
	}
	if diff := cmp.Diff(want, table); diff != "" {
		t.Errorf("kubectl get %s (-want +got):\n%s\nit printed\n%s", what, diff, output)
	}
}

// kubectlDescribes checks that what kubectl describe prints matches all patterns.
func (n *tenant) kubectlDescribes(t *testing.T, what string, patterns ...string) {
	t.Helper()
	output, err := n.kubectl(t, "", "describe", "-n", n.namespace, what)
	if err != nil {
		t.Fatalf("kubectl describe %s: %v\n%s", what, err, output)
	}
	for _, pattern := range patterns {
		if !regexp.MustCompile(pattern).MatchString(output) {
			t.Errorf("the output of kubectl describe does not match %s", pattern)
		}
	}
	if t.Failed() {
		t.Logf("kubectl describe %s printed\n%s", what, output)
	}
}

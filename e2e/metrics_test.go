package e2e

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/metrics"
	"github.com/stageset/stageset/e2e/process"
)

// unfinished are StageSets of the sources app and refused by the reason why they are not Ready.
var unfinished = map[string]string{
	v1.ReasonSuspended:              "suspend: true" + oneStage("app"),
	v1.ReasonPolicyViolation:        strings.Replace(oneStage("app"), "serviceAccountName: "+deployer, "", 1),
	v1.ReasonServiceAccountNotFound: strings.Replace(oneStage("app"), deployer, "nobody", 1),
	v1.ReasonAccessDenied:           strings.Replace(oneStage("app"), deployer, "stranger", 1),
	v1.ReasonDependencyNotReady:     "dependsOn: [{name: lost}]" + oneStage("app"),
	v1.ReasonBuildFailed:            oneStageWith("path: nowhere"),
	v1.ReasonApplyFailed:            oneStage("refused"),
}

// Every pass is counted by how it ended, every step is measured, and a StageSet has its number as long as it is there.
func TestMetricsOfPasses(t *testing.T) {
	s := setup(t)
	address := fmt.Sprintf("127.0.0.1:%d", process.FreePort(t))
	relay := s.relay(t)
	s.ownReconciler(t, "--metrics-bind-address="+address, "--kubeconfig",
		s.WriteKubeconfig(t, relay.config(s.TokenConfig(t, system, "stageset-reconciler"))))
	n := s.tenant(t)
	has := func(patterns ...string) {
		t.Helper()
		cluster.Eventually(t, func(ctx context.Context) error {
			content, err := scrape(ctx, address)
			if err != nil {
				return err
			}
			for _, pattern := range patterns {
				if !regexp.MustCompile("(?m)^" + pattern + "$").MatchString(content) {
					return fmt.Errorf("there is no %s in\n%s", pattern, strings.Join(
						regexp.MustCompile("(?m)^stageset_(re|qu|st|dr|or).*$").FindAllString(content, -1), "\n"))
				}
			}
			return nil
		})
	}
	readiness := func(name string) string {
		return fmt.Sprintf(`stageset_ready\{name="%s",namespace="%s",reason="\w+"\} `, name, n.namespace)
	}
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	n.stageSet(t, "app", oneStage("app"))
	n.stageSet(t, "lost", oneStage("missing"))
	n.waitReady(t, "app", "app", revision)
	n.wait(t, "lost", cluster.Condition(v1.ConditionReady, "False", v1.ReasonSourceNotFound))
	has(readiness("app")+"1", readiness("lost")+"0",
		`stageset_reconcile_total\{reason="Succeeded"\} [1-9]\d*`, `stageset_reconcile_total\{reason="SourceNotFound"\} [1-9]\d*`,
		`stageset_queue_seconds_count [1-9]\d*`, `stageset_queue_depth \d+`,
		`stageset_artifacts_total\{result="downloaded"\} [1-9]\d*`, `stageset_token_requests_total\{result="issued"\} [1-9]\d*`)
	web := n.source(t, "web", map[string]string{"web.yaml": deployment("web", "1")}) // is healthy only after a while
	n.stageSet(t, "web", oneStage("web"))
	n.waitReady(t, "web", "web", web)
	n.account(t, "stranger") // may do nothing
	n.source(t, "refused", map[string]string{"web.yaml": service("ports: [{port: 0}]")})
	for reason, spec := range unfinished {
		name := strings.ToLower(reason)
		n.stageSet(t, name, spec)
		n.wait(t, name, cluster.Condition(v1.ConditionReady, "False", reason))
		has(fmt.Sprintf(`stageset_ready\{name="%s",namespace="%s",reason="%s"\} 0`, name, n.namespace, reason),
			fmt.Sprintf(`stageset_reconcile_total\{reason="%s"\} [1-9]\d*`, reason))
	}
	for _, step := range []string{"dependencies", "sources", "build", "policies", "preflight", "apply", "health", "prune"} {
		has(fmt.Sprintf(`stageset_step_seconds_count\{step="%s"\} [1-9]\d*`, step))
	}
	has(`stageset_reconcile_total\{reason="Error"\} 0`)
	over := relay.refuse(n.namespace, moment{write: "patch stagesets/status"}, internal(), 1)
	n.pass(t, "app", "write it in the end")
	<-over
	has(`stageset_reconcile_total\{reason="Error"\} [1-9]\d*`)

	n.patch(t, n.configMap("a"), `{"data":{"value":"theirs"}}`)
	n.pass(t, "app", "correct")
	has(`stageset_drift_corrected_total [1-9]\d*`)

	looping := fmt.Sprintf(`stageset_drift_looping\{name="app",namespace="%s"\} 1`, n.namespace)
	for fight := range 3 {
		n.patch(t, n.configMap("a"), `{"data":{"value":"theirs again"}}`)
		revision = n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1"), "README.md": fmt.Sprint(fight)})
		n.waitReady(t, "app", "app", revision)
	}
	has(looping)

	n.delete(t, "app")
	n.gone(t, "app")
	has(`stageset_reconcile_total\{reason="Deleted"\} [1-9]\d*`)
	cluster.Eventually(t, func(ctx context.Context) error {
		content, err := scrape(ctx, address)
		if err == nil && regexp.MustCompile(readiness("app")).MatchString(content) {
			return fmt.Errorf("a StageSet that is gone has a number")
		}
		return err
	})

	// Who takes the finalizer away leaves behind what was applied.
	n.stageSet(t, "left", oneStage("app"))
	n.waitReady(t, "left", "app", revision)
	n.hold(t, n.configMap("a"))
	n.delete(t, "left")
	n.WaitFor(t, n.configMap("a"), beingDeleted)
	n.patch(t, n.ref("left"), `{"metadata":{"finalizers":null}}`)
	has(`stageset_orphaned_objects_total [1-9]\d*`)

	// What is served is what docs/metrics.md says, of libraries too.
	document, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	own, err := metrics.Documented(string(document), "stageset-reconciler")
	if err != nil {
		t.Fatal(err)
	}
	all, err := metrics.Documented(string(document), "stageset-reconciler", metrics.Libraries)
	if err != nil {
		t.Fatal(err)
	}
	served, err := scrape(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	if problems, _ := metrics.Compare(all, served); len(problems) > 0 {
		t.Errorf("not as documented: %v", problems)
	}
	_, missing := metrics.Compare(own, served)
	// Who fought is gone.
	if diff := cmp.Diff([]string{"stageset_drift_looping"}, missing); diff != "" {
		t.Errorf("documented, but not served (-want +got):\n%s", diff)
	}
}

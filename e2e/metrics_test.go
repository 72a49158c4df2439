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

// Every pass is counted by how it ended, every step is measured, and a StageSet has its number as long as it is there.
func TestMetricsOfPasses(t *testing.T) {
	s := setup(t)
	address := fmt.Sprintf("127.0.0.1:%d", process.FreePort(t))
	s.ownReconciler(t, "--metrics-bind-address="+address)
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
	for _, step := range []string{"sources", "build", "policies", "preflight", "apply", "prune"} {
		has(fmt.Sprintf(`stageset_step_seconds_count\{step="%s"\} [1-9]\d*`, step))
	}

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
	// Nothing violates a policy, and who fought is gone.
	if diff := cmp.Diff([]string{"stageset_drift_looping", "stageset_policy_decisions_total"}, missing); diff != "" {
		t.Errorf("documented, but not served (-want +got):\n%s", diff)
	}
}

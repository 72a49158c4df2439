package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/collector"
	"github.com/stageset/stageset/e2e/process"
)

// traced runs a reconciler of its own with environment variables, until the end of the test, which must not be parallel.
func (s *suite) traced(t *testing.T, environment []string, args ...string) *process.Process {
	t.Helper()
	s.stopReconciler(t)
	options := reconcilerOptions(t, s.Cluster, "127.0.0.1", args...)
	options.Env = environment
	return process.Start(t, options)
}

// A pass is a trace, with a span of each stage and of each step of it, and of what a step does for each stage.
func TestTraceOfAPass(t *testing.T) {
	s := setup(t)
	spans := collector.Start(t)
	run := s.traced(t, spans.Environment(), "--tracing")
	n := s.tenant(t)
	const canary = "canary-5Wd8"
	n.variables(t, "004", canary)
	revision := n.source(t, "app", map[string]string{
		"one/a.yaml": documents(configMap("a", "${TOKEN}"), configMap("left", "1")), "two/web.yaml": deployment("web", "1"),
	})
	n.stageSet(t, "app", withVariables)
	n.waitReady(t, "app", "app", revision)
	first := waitForTrace(t, spans, n, "app", hasSpan("wave objects=1 stage=two\n"))
	digest := regexp.MustCompile(`digest=sha256:[0-9a-f]{64}`)
	about := " name=app namespace=" + n.namespace + " reason="
	got := strings.ReplaceAll(digest.ReplaceAllString(first, "digest=..."), about+v1.ReasonProgressing, about+"...")
	want := `reconcile name=app namespace=` + n.namespace + ` reason=...
  sources
    source stage=one
  build
    render digest=... stage=one
    render digest=... stage=two
  policies
  preflight
  stage stage=one
    apply stage=one
      wave objects=2 stage=one
  stage stage=two
    apply stage=two
      wave objects=1 stage=two
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the trace of the pass that applied it (-want +got):\n%s", diff)
	}
	waitForTrace(t, spans, n, "app", hasSpan("  stage stage=two\n    health stage=two\n"), hasSpan("  prune\n"),
		hasSpan("reason="+v1.ReasonSucceeded))

	n.source(t, "app", map[string]string{"one/a.yaml": configMap("a", "${TOKEN}"), "two/web.yaml": deployment("web", "1")})
	waitForTrace(t, spans, n, "app", hasSpan("  prune\n    delete objects=1 stage=one\n"))

	// What an API server quotes is not in a trace; which stage failed, and why, is.
	n.source(t, "app", map[string]string{
		"one/a.yaml": service("type: '${TOKEN}', ports: [{port: 80}]"), "two/b.yaml": configMap("b", "1"),
	})
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonApplyFailed))
	waitForTrace(t, spans, n, "app",
		hasSpan("reason="+v1.ReasonApplyFailed), hasSpan(" (failed)\n  "), hasSpan("  preflight\n"))
	n.delete(t, "app")
	n.gone(t, "app")
	waitForTrace(t, spans, n, "app", hasSpan("  prune\n    delete objects=1 stage=two\n"))

	if err := run.Stop(); err != nil {
		t.Error(err)
	}
	if strings.Contains(spans.Content(), canary) {
		t.Error("the value of a Secret was sent")
	}
	line := regexp.MustCompile(`(?m)^.*msg="pass failed".*$`).FindString(run.Output())
	if !strings.Contains(line, "trace_id=") {
		t.Errorf("the log does not say which trace it is about: %s", line)
	}
}

func hasSpan(text string) func(trace string) bool {
	return func(trace string) bool { return strings.Contains(trace, text) }
}

// waitForTrace waits for a trace of a StageSet that is as wanted, and returns it.
func waitForTrace(t *testing.T, from *collector.Collector, n *tenant, name string, wanted ...func(string) bool) string {
	t.Helper()
	var found string
	cluster.Eventually(t, func(context.Context) error {
		spans := from.Spans()
		var all []string
		for _, root := range spans {
			about := root.Attributes
			if root.Parent != "" || about["stageset.namespace"] != n.namespace || about["stageset.name"] != name {
				continue
			}
			found = collector.Tree(root, spans)
			if !slices.ContainsFunc(wanted, func(is func(string) bool) bool { return !is(found) }) {
				return nil
			}
			all = append(all, found)
		}
		return fmt.Errorf("none of these traces is as wanted:\n%s", strings.Join(all, "\n"))
	})
	return found
}

// Nothing is connected to unless --tracing says so, whatever the environment of a Pod has.
func TestNoTracesUnlessAsked(t *testing.T) {
	s := setup(t)
	spans := collector.Start(t)
	run := s.traced(t, spans.Environment())
	n := s.tenant(t)
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", revision)
	if err := run.Stop(); err != nil {
		t.Error(err)
	}
	if connections := spans.Connections(); connections != 0 {
		t.Errorf("%d connections to the collector", connections)
	}
	if strings.Contains(run.Output(), "trace_id") {
		t.Error("the log names traces that there are not")
	}
}

// A collector that accepts connections and never answers costs traces and nothing else, also when the queue is full.
func TestReleaseWithoutItsCollector(t *testing.T) {
	s := setup(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	silent := make(chan net.Conn, 100)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				close(silent)
				return
			}
			silent <- connection
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		for connection := range silent {
			connection.Close()
		}
	})
	run := s.traced(t, []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + listener.Addr().String(), "OTEL_EXPORTER_OTLP_TIMEOUT=100",
		"OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_BSP_MAX_QUEUE_SIZE=2",
	}, "--tracing")
	n := s.tenant(t)
	revision := n.source(t, "app", map[string]string{"one/a.yaml": configMap("a", "1"), "two/b.yaml": configMap("b", "1")})
	n.stageSet(t, "app", twoStages("app"))
	n.waitReady(t, "app", "app", revision)
	const complaint = `msg="traces are not sent"`
	cluster.Eventually(t, func(context.Context) error {
		if !strings.Contains(run.Output(), complaint) {
			return errors.New("nobody said that traces are not sent")
		}
		return nil
	})
	n.pass(t, "app", "again")
	if err := run.Stop(); err != nil {
		t.Error(err)
	}
	if said := strings.Count(run.Output(), complaint); said != 1 {
		t.Errorf("it was said %d times within a minute", said)
	}
}

package e2e

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// hostile is a text that would end the line, the quotes, the label or the document that it is put in, turn its direction
// around, or move the cursor of a terminal.
const hostile = "x\"'} 1\n---\nforged: true\r\x1b[2J\x1b]0;t\a\u202e\u2066\u200b\\n{\"level\":\"error\"}\t# %s %!d(MISSING)"

// hostileServer is an API server that refuses everything, in such words.
func hostileServer(t *testing.T) kubeconfigFile {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status := metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusForbidden,
			Reason: metav1.StatusReasonForbidden, Message: hostile,
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(status)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return kubeconfigFile{
		cluster: map[string]any{"server": server.URL, "certificate-authority-data": ca}, user: map[string]any{"token": "t"},
	}
}

// saysOfSource makes a source whose status says something: of a kind that nobody else writes the status of.
func (n *tenant) saysOfSource(t *testing.T, name, message string) {
	t.Helper()
	n.Apply(t, fmt.Sprintf(`
apiVersion: source.toolkit.fluxcd.io/v1
kind: ExternalArtifact
metadata: {name: %s, namespace: %s}
spec: {sourceRef: {apiVersion: example.com/v1, kind: Release, name: any}}`, name, n.namespace))
	status, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []metav1.Condition{{
		Type: fluxmeta.ReadyCondition, Status: metav1.ConditionFalse, Reason: "Failed", Message: message,
		ObservedGeneration: 1, LastTransitionTime: metav1.Now(),
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	source := cluster.Ref("source.toolkit.fluxcd.io/v1", "ExternalArtifact", n.namespace, name)
	if err := n.Client.Status().Patch(t.Context(), source, client.RawPatch(types.MergePatchType, status)); err != nil {
		t.Fatal(err)
	}
}

// saidOf is a StageSet of such a source.
func saidOf(name string) string {
	return strings.Replace(oneStage(name), sourcev1.GitRepositoryKind, sourcev1.ExternalArtifactKind, 1)
}

// The attack of names and messages that break what they are written into: of files, objects and kinds in a source, of the
// source's status, and of another cluster's answers. Conditions and events are one line each that shows all that it has,
// every line of the log is a document in JSON, and metrics and YAML are read by those who read them.
func TestHostileTextsBreakNothing(t *testing.T) {
	s := setup(t)
	address := fmt.Sprintf("127.0.0.1:%d", process.FreePort(t))
	reconciler := s.ownReconciler(t, "--log-format=json", "--log-level=debug", "--metrics-bind-address="+address)
	n := s.tenant(t)
	quoted, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	good := configMap("a", "1")
	for name, files := range map[string]map[string]string{
		"file":   {"x" + strings.ReplaceAll(hostile, "/", "") + ".yaml": "kind: [", "a.yaml": good},
		"object": {"a.yaml": strings.Replace(good, "name: a", "name: "+string(quoted), 1)},
		"kind":   {"a.yaml": strings.Replace(good, "kind: ConfigMap", "kind: "+string(quoted), 1)},
		"broken": {"a.yaml": "a: " + hostile + "\n\tb: [" + hostile},
		"remote": {"a.yaml": good},
	} {
		n.source(t, name, files)
	}
	n.saysOfSource(t, "source", hostile)
	n.kubeconfig(t, "hostile", hostileServer(t))
	quotes := map[string]string{ // what shows that the hostile text, or what is wrong with it, is in the message
		"file": "forged: true", "object": "forged: true", "kind": "forged: true", "source": "forged: true",
		"remote": "forged: true", "broken": "holds the control character U+001B",
	}
	names := slices.Sorted(maps.Keys(quotes))
	for _, name := range names {
		spec := oneStage(name)
		switch name {
		case "remote":
			spec = toOther(name, "hostile")
		case "source":
			spec = saidOf(name)
		}
		n.stageSet(t, name, spec)
	}
	for _, name := range names {
		set := n.wait(t, name, cluster.Condition(v1.ConditionReady, "False"), messageHas(quotes[name]))
		for _, condition := range set.Status.Conditions {
			shows(t, name+": condition "+condition.Type, condition.Message)
		}
		for _, stage := range set.Status.Stages {
			shows(t, name+": stage "+stage.Name, stage.Message)
		}
		if name != "source" { // whose StageSet waits, without an event
			n.waitEvent(t, name, "Warning", readyReason(set), "")
		}
	}
	var events eventsv1.EventList
	if err := n.Client.List(t.Context(), &events, client.InNamespace(n.namespace)); err != nil {
		t.Fatal(err)
	}
	for _, event := range events.Items {
		shows(t, "event of "+event.Regarding.Name, event.Note)
	}
	n.readable(t, names)
	n.scraped(t, address, names)
	for line := range strings.Lines(reconciler.Output()) {
		var entry struct{ Level, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Level == "" || entry.Msg == "" {
			t.Errorf("a line of the log is no entry (%v): %q", err, line)
		}
	}
}

// readyReason is the reason of the condition Ready.
func readyReason(set *v1.StageSet) string {
	for _, condition := range set.Status.Conditions {
		if condition.Type == v1.ConditionReady {
			return condition.Reason
		}
	}
	return ""
}

// shows checks that a text is one line in which nothing is unseen.
func shows(t *testing.T, what, text string) {
	t.Helper()
	unseen := func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }
	if !utf8.ValidString(text) || strings.ContainsFunc(text, unseen) {
		t.Errorf("%s: not a line that shows all it has: %q", what, text)
	}
}

// readable checks that what kubectl prints as YAML is as many StageSets, and that a table has a line for each.
func (n *tenant) readable(t *testing.T, names []string) {
	t.Helper()
	printed, err := n.kubectl(t, "", "get", "stagesets", "-n", n.namespace, "-o", "yaml")
	if err != nil {
		t.Fatal(printed)
	}
	var list v1.StageSetList
	if err := yaml.UnmarshalStrict([]byte(printed), &list); err != nil || len(list.Items) != len(names) {
		t.Errorf("read as %d StageSets (%v)", len(list.Items), err)
	}
	table, err := n.kubectl(t, "", "get", "stagesets", "-n", n.namespace, "-o", "wide", "--no-headers")
	if lines := strings.Count(table, "\n"); err != nil || lines != len(names) {
		t.Errorf("%d lines for %d StageSets:\n%s", lines, len(names), table)
	}
	for line := range strings.Lines(table) {
		shows(t, "the table", strings.TrimSuffix(line, "\n"))
	}
}

// scraped checks that Prometheus reads the metrics, and that each StageSet has its number.
func (n *tenant) scraped(t *testing.T, address string, names []string) {
	t.Helper()
	content, err := scrape(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(content))
	if err != nil {
		t.Fatalf("%v in\n%s", err, content)
	}
	ready := map[string]bool{}
	for _, metric := range families["stageset_ready"].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "name" {
				ready[label.GetValue()] = true
			}
		}
	}
	for _, name := range names {
		if !ready[name] {
			t.Errorf("stageset_ready has no %s: %v", name, ready)
		}
	}
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				shows(t, name+": label "+label.GetName(), label.GetValue())
			}
		}
	}
}

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// killings are the moments at which a reconciler is killed while it installs, updates or deletes a release. Without any,
// nothing happens to it.
var killings = []struct {
	name                    string
	install, update, delete moment
}{
	{name: "never"},
	{name: "before the finalizer is there", install: moment{write: "patch stagesets"}},
	{name: "finalizer is there", install: moment{write: "patch stagesets", stored: true}},
	{name: "stage one is written ahead", install: moment{write: "create stageinventories", stored: true}},
	{name: "before the first object", install: moment{write: "patch *"}},
	{name: "first object is there", install: moment{write: "patch *", stored: true}},
	{name: "in the midst of a wave", install: moment{write: "patch configmaps", nth: 3, stored: true}},
	{name: "stage one is there, not confirmed", install: moment{write: "update stageinventories"}},
	{name: "stage one is confirmed", install: moment{write: "update stageinventories", stored: true}},
	{name: "stage one is waited for", install: moment{write: "patch stagesets/status", stored: true}},
	{name: "stage two is written ahead", install: moment{write: "create stageinventories", nth: 2, stored: true}},
	{name: "before it is Ready", install: moment{write: "patch stagesets/status", holding: v1.ReasonSucceeded}},
	{name: "first change", update: moment{write: "patch *", stored: true}},
	{name: "an object has moved", update: moment{write: "patch configmaps", holding: "moves", stored: true}},
	{name: "before what left is deleted", update: moment{write: "delete *"}},
	{name: "what left is deleted", update: moment{write: "delete *", stored: true}},
	{name: "before what was deleted is forgotten", update: moment{write: "update stageinventories", nth: 4}},
	{name: "before the update is Ready", update: moment{write: "patch stagesets/status", holding: v1.ReasonSucceeded}},
	{name: "deletion has begun", delete: moment{write: "delete *", stored: true}},
	{name: "an inventory is let go", delete: moment{write: "update stageinventories", stored: true}},
	{name: "before the finalizer goes", delete: moment{write: "patch stagesets"}},
}

// I6, I3: whenever the reconciler dies, its successor ends where it would have ended: every object went through the same
// contents, once each, everything is in an inventory, and nothing is left.
func TestKilledReconcilerLosesNothing(t *testing.T) {
	s := setup(t)
	lives := s.lives(t)
	var undisturbed string
	for _, kill := range killings {
		t.Run(kill.name, func(t *testing.T) {
			n := s.tenant(t)
			seen := n.record(t)

			lives.through(t, n, kill.install, func() string {
				revision := n.source(t, "app", map[string]string{
					"one/config.yaml": documents(configMap("stays", "1"), configMap("changes", "1"), configMap("moves", "1")),
					"one/web.yaml":    deployment("web", "1"),
					"two/config.yaml": documents(configMap("leaves", "1"), configMap("late", "1")),
				})
				n.stageSet(t, "app", "retryInterval: 1s"+twoStages("app"))
				return revision
			}, func(revision string) { n.waitReady(t, "app", "app", revision) })

			lives.through(t, n, kill.update, func() string {
				return n.source(t, "app", map[string]string{
					"one/config.yaml": documents(configMap("stays", "1"), configMap("changes", "2")),
					"one/web.yaml":    deployment("web", "2"),
					"two/config.yaml": documents(configMap("moves", "1"), configMap("late", "2"), configMap("new", "1")),
				})
			}, func(revision string) { n.waitReady(t, "app", "app", revision) })
			if got := n.result(t); undisturbed == "" {
				undisturbed = got
			} else if diff := cmp.Diff(undisturbed, got); diff != "" {
				t.Errorf("result (-undisturbed +got):\n%s", diff)
			}

			lives.through(t, n, kill.delete, func() string {
				n.delete(t, "app")
				return ""
			}, func(string) { n.gone(t, "app") })
			seen.compare(t, map[string][]string{
				"ConfigMap stays":   {"one: 1", "gone"},
				"ConfigMap changes": {"one: 1", "one: 2", "gone"},
				"ConfigMap moves":   {"one: 1", "two: 1", "gone"},
				"ConfigMap leaves":  {"two: 1", "gone"},
				"ConfigMap late":    {"two: 1", "two: 2", "gone"},
				"ConfigMap new":     {"two: 1", "gone"},
				"Deployment web":    {"one: registry.invalid/app:1", "one: registry.invalid/app:2", "gone"},
			})
		})
	}
}

// I3: what was made just before the reconciler died is found again although nothing has recorded that it was, also by a
// successor that finds a release without it.
func TestObjectMadeByAKilledReconcilerIsDeletedWhenItLeft(t *testing.T) {
	s := setup(t)
	lives := s.lives(t)
	made := moment{write: "patch configmaps", holding: "leaves", stored: true}
	with := map[string]string{"a.yaml": configMap("leaves", "1"), "b.yaml": configMap("stays", "1")}
	without := map[string]string{"b.yaml": configMap("stays", "1")}

	t.Run("for the first time", func(t *testing.T) {
		n := s.tenant(t)
		n.source(t, "app", with)
		lives.die(t, n, made, func() { n.stageSet(t, "app", oneStage("app")) })
		n.uid(t, n.configMap("leaves"))
		revision := n.source(t, "app", without)
		lives.begin()
		n.waitReady(t, "app", "app", revision)
		n.absent(t, n.configMap("leaves"))
	})
	t.Run("again, after somebody deleted it", func(t *testing.T) {
		n := s.tenant(t)
		revision := n.source(t, "app", with)
		n.stageSet(t, "app", oneStage("app"))
		n.waitReady(t, "app", "app", revision)
		if err := n.Client.Delete(t.Context(), n.configMap("leaves")); err != nil {
			t.Fatal(err)
		}
		lives.die(t, n, made, func() { n.request(t, "app", "now") })
		n.uid(t, n.configMap("leaves"))
		revision = n.source(t, "app", without)
		lives.begin()
		n.waitReady(t, "app", "app", revision)
		n.absent(t, n.configMap("leaves"))
	})
	// Nothing has recorded that an object which was to be changed would be made anew: so it is not.
	t.Run("never, after somebody deleted what was to be changed", func(t *testing.T) {
		n := s.tenant(t)
		revision := n.source(t, "app", with)
		n.stageSet(t, "app", oneStage("app"))
		n.waitReady(t, "app", "app", revision)
		changed := made
		changed.meanwhile = func() {
			if err := n.Client.Delete(t.Context(), n.configMap("leaves")); err != nil {
				t.Error(err)
			}
		}
		lives.die(t, n, changed, func() {
			revision = n.source(t, "app", map[string]string{"a.yaml": configMap("leaves", "2"), "b.yaml": configMap("stays", "1")})
		})
		n.absent(t, n.configMap("leaves"))
		lives.begin()
		n.waitReady(t, "app", "app", revision)
		n.hasValue(t, "leaves", "2")
		revision = n.source(t, "app", without)
		n.waitReady(t, "app", "app", revision)
		n.absent(t, n.configMap("leaves"))
	})
}

// I3: a stage whose account changes is recorded under the new one before it is no longer recorded under the old one.
func TestKilledReconcilerForgetsNothingOfAnAccountThatChanged(t *testing.T) {
	s := setup(t)
	lives := s.lives(t)
	n := s.tenant(t)
	n.account(t, "successor", "edit")
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", revision)
	lives.die(t, n, moment{write: "delete stageinventories", stored: true}, func() {
		n.patch(t, n.ref("app"), `{"spec":{"serviceAccountName":"successor"}}`)
	})
	n.delete(t, "app")
	lives.begin()
	n.gone(t, "app")
	n.absent(t, n.configMap("a"))
}

// lives are reconcilers that follow one another, each until it is killed.
type lives struct {
	t       testing.TB // the test that they all live in
	options process.Options
	relay   *relay
	now     *process.Process
}

// lives begins with one that runs. They end with the test.
func (s *suite) lives(t *testing.T) *lives {
	t.Helper()
	s.stopReconciler(t)
	l := &lives{t: t, relay: s.relay(t)}
	l.options = reconcilerOptions(t, s.Cluster, "127.0.0.1", hashKey(t), "--kubeconfig",
		s.WriteKubeconfig(t, l.relay.config(s.TokenConfig(t, system, "stageset-reconciler"))))
	l.begin()
	return l
}

// hashKey is the argument that has reconcilers that follow one another know what was applied.
func hashKey(t testing.TB) string {
	t.Helper()
	key := filepath.Join(t.TempDir(), "hash-key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	return "--hash-key-file=" + key
}

func (l *lives) begin() {
	l.t.Helper()
	l.now = process.Start(l.t, l.options)
}

// through does something that sets the reconciler to work, kills it at the moment, if there is one, and lets its
// successor bring the work to its end.
func (l *lives) through(t *testing.T, n *tenant, at moment, begin func() string, end func(revision string)) {
	t.Helper()
	if at.write == "" {
		end(begin())
		return
	}
	var revision string
	l.die(t, n, at, func() { revision = begin() })
	l.begin()
	end(revision)
}

// die does something that sets the reconciler to work, and waits until it is dead of it.
func (l *lives) die(t *testing.T, n *tenant, at moment, begin func()) {
	t.Helper()
	killed := l.relay.kill(l.now, n.namespace, at)
	begin()
	n.WaitFor(t, n.ref("app"), func(*unstructured.Unstructured) error {
		select {
		case <-killed:
			return nil
		default:
			return fmt.Errorf("the reconciler was not killed: there was no request that %s", at)
		}
	})
}

// result is what a release that succeeded looks like: inventories, and the status but for its times.
func (n *tenant) result(t *testing.T) string {
	t.Helper()
	set := n.wait(t, "app", cluster.Condition(v1.ConditionReady, "True", v1.ReasonSucceeded))
	var lines []string
	for _, condition := range set.Status.Conditions {
		lines = append(lines, fmt.Sprintf("%s=%s %s %d: %s",
			condition.Type, condition.Status, condition.Reason, condition.ObservedGeneration, condition.Message))
	}
	for _, stage := range set.Status.Stages {
		lines = append(lines, fmt.Sprintf("stage %s: %s, %d objects, %s", stage.Name, stage.Phase, stage.Objects, stage.Revision))
	}
	lines = append(lines, fmt.Sprint(set.Status.LastAppliedRevisions, set.Status.LastAttemptedRevisions, set.Finalizers))
	lines = append(lines, n.inventory(t, "app")...)
	web := n.live(t, cluster.Ref("apps/v1", "Deployment", n.namespace, "web"))
	lines = append(lines, fmt.Sprintf("Deployment of generation %d", web.GetGeneration()))
	return strings.ReplaceAll(strings.Join(lines, "\n"), n.namespace, "NAMESPACE")
}

// history is what became of the objects of a StageSet: their stages and contents, one after the other.
type history struct {
	mu   sync.Mutex
	seen map[string][]string
}

// record watches the tenant's objects until the end of the test.
func (n *tenant) record(t *testing.T) *history {
	t.Helper()
	h := &history{seen: map[string][]string{}}
	watcher := n.Cluster.Client(t)
	for apiVersion, kind := range map[string]string{"v1": "ConfigMap", "apps/v1": "Deployment"} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(apiVersion)
		list.SetKind(kind + "List")
		stream, err := watcher.Watch(t.Context(), list, client.InNamespace(n.namespace))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stream.Stop)
		go func() {
			for event := range stream.ResultChan() {
				h.add(event)
			}
		}()
	}
	return h
}

func (h *history) add(event watch.Event) {
	object, ok := event.Object.(*unstructured.Unstructured)
	if !ok || object.GetLabels()[v1.LabelName] != "app" {
		return
	}
	content := "gone"
	if event.Type != watch.Deleted {
		content = object.GetLabels()[v1.LabelStage] + ": " + value(object)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := object.GetKind() + " " + object.GetName()
	if past := h.seen[key]; len(past) == 0 || past[len(past)-1] != content {
		h.seen[key] = append(past, content)
	}
}

// value is what the tests change of an object.
func value(object *unstructured.Unstructured) string {
	if text, found, _ := unstructured.NestedString(object.Object, "data", "value"); found {
		return text
	}
	containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	for _, container := range containers {
		if fields, ok := container.(map[string]any); ok {
			return fmt.Sprint(fields["image"])
		}
	}
	return "nothing"
}

// compare waits until everything was seen that the objects went through, and no more than that.
func (h *history) compare(t *testing.T, want map[string][]string) {
	t.Helper()
	cluster.Eventually(t, func(context.Context) error {
		h.mu.Lock()
		got := maps.Clone(h.seen)
		h.mu.Unlock()
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("contents of objects (-want +got):\n%s", diff)
		}
		return nil
	})
}

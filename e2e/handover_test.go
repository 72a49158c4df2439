package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// StageSets are changed without a pause while the reconciler that leads ends, in order and by a crash. Another one goes on
// within the time that docs/operations.md states, never before the first has made its last write, and whatever was under way
// ends applied. The webhook, which is a program of its own, answers all the time: a change that is refused ends the test.
func TestReplicasTakeOverFromOneAnother(t *testing.T) {
	s := setup(t)
	s.stopReconciler(t)
	n := s.tenant(t)
	s.startAdmission(t, n)
	key := hashKey(t)
	first := s.replica(t, key)
	changing := n.changing(t, 6)
	changing.until(t, "the first replica applies", func() bool { return first.applied() >= 50 })

	second := s.replica(t, key)
	ended := make(chan error, 1)
	mark := second.applied()
	go func() { ended <- first.process.Stop() }()
	changing.until(t, "the second replica applies", func() bool { return second.applied() >= mark+50 })
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if mark > 0 {
		t.Errorf("the second replica has applied %d objects while the first led", mark)
	}
	first.journal.before(t, second.journal, 5*time.Second)
	if last := first.journal.last(t, func(w write) bool { return !w.lease() && !w.event() }); !last.end.Before(first.released(t)) {
		t.Errorf("the lease was given up at %s, before the last write ended: %+v", first.released(t), last)
	}

	third := s.replica(t, key)
	var lease coordinationv1.Lease
	if err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: system, Name: "stageset-reconciler"}, &lease); err != nil {
		t.Fatal(err)
	}
	second.process.Kill()
	changing.until(t, "the third replica applies", func() bool { return third.applied() >= 50 })
	second.journal.before(t, third.journal, time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second+2*time.Second)
	changing.ended(t)
}

// replica is one of the reconcilers of an installation: one of them leads.
type replica struct {
	process *process.Process
	journal *journal
}

// replica runs one until the end of the test.
func (s *suite) replica(t *testing.T, args ...string) *replica {
	t.Helper()
	relay := s.relay(t)
	r := &replica{journal: &journal{next: relay.next}}
	relay.next = r.journal
	options := reconcilerOptions(t, s.Cluster, "127.0.0.1", append(args, "--leader-elect", policyConfig(t, defaultPolicyConfig),
		"--kubeconfig", s.WriteKubeconfig(t, relay.config(s.TokenConfig(t, system, programReconciler))))...)
	r.process = process.Start(t, options)
	return r
}

// applied is how many objects of tenants the replica has written.
func (r *replica) applied() int { return len(r.journal.find(applies)) }

// released is when the replica gave the lease up.
func (r *replica) released(t *testing.T) time.Time {
	t.Helper()
	return r.journal.last(t, func(w write) bool { return w.stored && w.lease() }).begin
}

// write is a request of a replica that may change something that is stored.
type write struct {
	// of is as describe has it, such as "patch configmaps".
	of         string
	begin, end time.Time
	// stored is true if the API server has answered that it did it.
	stored bool
}

func (w write) lease() bool { return strings.HasSuffix(w.of, " leases") }

// event is true for writes of events, which are sent in the background and change nothing.
func (w write) event() bool { return strings.HasSuffix(w.of, " events") }

// applies wants writes of objects of tenants that were stored.
func applies(w write) bool { return w.stored && w.tenants() }

// tenants is true for writes of objects of tenants, whether or not the API server has answered.
func (w write) tenants() bool { return w.of == "patch configmaps" || w.of == "delete configmaps" }

// journal notes the writes that pass it.
type journal struct {
	next http.RoundTripper
	// away is set when nothing passes any more, nor is answered.
	away atomic.Bool

	mu     sync.Mutex
	writes []write
}

// RoundTrip passes a request on.
func (j *journal) RoundTrip(request *http.Request) (*http.Response, error) {
	if j.away.Load() {
		if request.Body != nil { // or else the server does not notice that nobody waits any more
			_, _ = io.Copy(io.Discard, request.Body)
		}
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	_, of := describe(request)
	noted := write{of: of, begin: time.Now()}
	response, err := j.next.RoundTrip(request)
	if verb, _, _ := strings.Cut(of, " "); slices.Contains([]string{"create", "update", "patch", "delete"}, verb) {
		noted.end, noted.stored = time.Now(), err == nil && response.StatusCode < http.StatusMultipleChoices
		j.mu.Lock()
		j.writes = append(j.writes, noted)
		j.mu.Unlock()
	}
	return response, err
}

// find is what was noted so far and is wanted, in the order in which it ended.
func (j *journal) find(wanted func(write) bool) []write {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(j.writes), func(w write) bool { return !wanted(w) })
}

// last is the last that was noted and is wanted; there must be one.
func (j *journal) last(t *testing.T, wanted func(write) bool) write {
	t.Helper()
	found := j.find(wanted)
	if len(found) == 0 {
		t.Fatal("there is no such write")
	}
	return found[len(found)-1]
}

// longestUsualPause is how long nothing may be applied while one replica leads. On a machine that pauses for longer, the time
// of a handover says nothing: the allowance that is made for its pauses would be of the size of what is measured.
const longestUsualPause = 2 * time.Second

// before checks that the writer of the next journal applied nothing while this one still did, and how long nothing was applied:
// no longer than the limit, and the longest pause that there was anyway, on a machine that does much else.
func (j *journal) before(t *testing.T, next *journal, limit time.Duration) {
	t.Helper()
	old, young := j.find(applies), next.find(applies)
	usual := time.Duration(0)
	for i := range old[1:] {
		usual = max(usual, old[i+1].end.Sub(old[i].end))
	}
	first := young[0]
	pause := first.end.Sub(old[len(old)-1].end)
	t.Logf("nothing was applied for %s; the longest pause before was %s", pause, usual)
	if last := j.last(t, write.tenants); !last.end.Before(first.begin) {
		t.Errorf("a write that began at %s was followed by one of the former leader, which ended at %s", first.begin, last.end)
	}
	if usual > longestUsualPause {
		t.Errorf("while one replica led, nothing was applied for %s, want at most %s", usual, longestUsualPause)
	}
	if pause > limit+usual {
		t.Errorf("nothing was applied for %s, want at most %s and %s, the longest pause before", pause, limit, usual)
	}
}

// changing are StageSets of a tenant that are changed again and again. Each change changes an object, makes one and takes one
// away.
type changing struct {
	*tenant
	names  []string
	number int
}

// changing makes as many StageSets.
func (n *tenant) changing(t *testing.T, count int) *changing {
	t.Helper()
	c := &changing{tenant: n}
	for i := range count {
		name := fmt.Sprintf("app-%d", i)
		c.names = append(c.names, name)
		n.source(t, name, map[string]string{
			"config.yaml": documents(configMap(name, "${number}"), configMap(`"`+name+`-${number}"`, "1")),
		})
		n.stageSet(t, name, c.spec(name))
	}
	return c
}

// spec is the spec of a StageSet, as the last change has left it.
func (c *changing) spec(name string) string {
	spec, _ := json.Marshal(map[string]any{
		"serviceAccountName": deployer, "retryInterval": "1s",
		"stages": []any{map[string]any{
			"name": "app", "sourceRef": map[string]any{"kind": "GitRepository", "name": name},
			"postBuild": map[string]any{"substitute": map[string]any{"number": c.last()}},
		}},
	})
	return string(spec)
}

// last is what the last change has put everywhere.
func (c *changing) last() string { return fmt.Sprintf("n%d", c.number) }

// until changes the StageSets, one after the other, until it holds.
func (c *changing) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * cluster.Timeout); !holds(); c.number++ {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		for _, name := range c.names {
			c.patch(t, c.ref(name), `{"spec":`+c.spec(name)+`}`)
		}
	}
}

// ended waits until the StageSets are Ready as they were last changed, and checks that they have left that, recorded that, and
// nothing else.
func (c *changing) ended(t *testing.T) {
	t.Helper()
	var want, recorded []string
	for _, name := range c.names {
		c.patch(t, c.ref(name), `{"spec":`+c.spec(name)+`}`)
		c.wait(t, name, cluster.Condition(v1.ConditionReady, "True", v1.ReasonSucceeded))
		want = append(want, name+"="+c.last(), name+"-"+c.last()+"=1")
		recorded = append(recorded, c.inventory(t, name)...)
	}
	var list corev1.ConfigMapList
	if err := c.Client.List(t.Context(), &list, client.InNamespace(c.namespace), client.HasLabels{v1.LabelName}); err != nil {
		t.Fatal(err)
	}
	var got, inRecords []string
	for _, live := range list.Items {
		got = append(got, live.Name+"="+live.Data["value"])
		inRecords = append(inRecords, "app as deployer: ConfigMap "+live.Name)
	}
	for _, list := range [][]string{want, got, recorded, inRecords} {
		slices.Sort(list)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what is applied (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(inRecords, recorded); diff != "" {
		t.Errorf("what is recorded (-applied +recorded):\n%s", diff)
	}
}

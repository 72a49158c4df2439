package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/artifacts"
	"github.com/stageset/stageset/e2e/cluster"
)

// unfulfilled are requests that the API server does not fulfil, each for a while: whatever a request is for, the release ends
// as it would have ended, without a hand. An answer that is lost is lost once: there is no second such request.
var unfulfilled = map[string]struct {
	at     moment
	answer *apierrors.StatusError
}{
	"an apply conflicts":            {moment{write: "patch configmaps"}, conflict("configmaps")},
	"an apply is not done":          {moment{write: "patch configmaps"}, internal()},
	"an apply comes too fast":       {moment{write: "patch configmaps", nth: 2}, apierrors.NewTooManyRequests("later", 1)},
	"an apply is not answered":      {moment{write: "patch deployments"}, unavailable()},
	"an answer to an apply is lost": {moment{write: "patch configmaps", nth: 2, stored: true}, internal()},
	"an inventory is not made":      {moment{write: "create stageinventories"}, internal()},
	"an inventory conflicts":        {moment{write: "update stageinventories"}, conflict("stageinventories")},
	"an inventory is made, unheard": {moment{write: "create stageinventories", stored: true}, internal()},
	"the finalizer conflicts":       {moment{write: "patch stagesets"}, conflict("stagesets")},
	"the status is not written":     {moment{write: "patch stagesets/status"}, internal()},
	"there is no token":             {moment{write: "create serviceaccounts/token"}, unavailable()},
	"the source cannot be read":     {moment{write: "get gitrepositories"}, internal()},
	"live objects cannot be read":   {moment{write: "list configmaps"}, unavailable()},
	"a deletion conflicts":          {moment{write: "delete configmaps"}, conflict("configmaps")},
	"a deletion is not done":        {moment{write: "delete configmaps"}, internal()},
	"a deletion is done, unheard":   {moment{write: "delete configmaps", stored: true}, internal()},
}

func conflict(resource string) *apierrors.StatusError {
	return apierrors.NewConflict(schema.GroupResource{Resource: resource}, "it", errors.New("it has been modified"))
}

func internal() *apierrors.StatusError {
	return apierrors.NewInternalError(errors.New("etcd is not itself"))
}

func unavailable() *apierrors.StatusError { return apierrors.NewServiceUnavailable("try again") }

func TestReleaseEndsWellAfterRefusedRequests(t *testing.T) {
	s := setup(t)
	lives := s.lives(t)
	for name, refused := range unfulfilled {
		t.Run(name, func(t *testing.T) {
			n := s.tenant(t)
			n.source(t, "app", map[string]string{
				"one/config.yaml": documents(configMap("a", "1"), configMap("b", "1")),
				"two/web.yaml":    deployment("web", "1"),
			})
			times := 3
			if refused.at.stored {
				times = 1
			}
			over := lives.relay.refuse(n.namespace, refused.at, refused.answer, times)
			n.stageSet(t, "app", "retryInterval: 1s"+twoStages("app"))
			second := func() string {
				return n.source(t, "app", map[string]string{
					"one/config.yaml": documents(configMap("a", "2"), configMap("c", "1")),
					"two/web.yaml":    deployment("web", "1"),
				})
			}
			switch refused.at.write {
			case "list configmaps": // asked only once there is something to look at
				n.wait(t, "app", cluster.Condition(v1.ConditionReady, "True"))
				n.request(t, "app", "look")
			case "delete configmaps": // only what has left is deleted
				n.wait(t, "app", cluster.Condition(v1.ConditionReady, "True"))
				second()
			}
			n.WaitFor(t, n.ref("app"), func(*unstructured.Unstructured) error {
				select {
				case <-over:
					return nil
				default:
					return fmt.Errorf("not all of %d requests were made that are refused: %+v", times, refused.at)
				}
			})
			n.waitReady(t, "app", "app", second())
			n.hasValue(t, "a", "2")
			n.absent(t, n.configMap("b"))
			recorded := []string{"one as deployer: ConfigMap a", "one as deployer: ConfigMap c", "two as deployer: Deployment web"}
			if diff := cmp.Diff(recorded, n.inventory(t, "app")); diff != "" {
				t.Errorf("inventory (-want +got):\n%s", diff)
			}
			n.delete(t, "app")
			n.gone(t, "app")
			n.absent(t, n.configMap("a"), n.configMap("c"))
		})
	}
}

// A release that is in the midst of its work when the API server or etcd is killed goes on when they are back.
func TestReleaseSurvivesARestartOfTheControlPlane(t *testing.T) {
	s := setup(t)
	lives := s.lives(t)
	for _, component := range []string{"kube-apiserver", "etcd"} {
		t.Run(component, func(t *testing.T) {
			n := s.tenant(t)
			many := make([]string, 0, 200)
			for number := range 200 {
				many = append(many, configMap(fmt.Sprintf("map-%03d", number), "1"))
			}
			first := n.source(t, "app", map[string]string{
				"one/many.yaml": documents(many...), "two/web.yaml": heldDeployment("web", "1"),
			})
			killed := make(chan struct{})
			midst := lives.relay.pause(n.namespace, moment{write: "patch configmaps", nth: len(many) / 2}, killed)
			n.stageSet(t, "app", "retryInterval: 1s"+twoStages("app"))
			n.reaches(t, midst)
			s.KillComponent(t, component)
			close(killed)
			s.AwaitAPI(t)
			n.wait(t, "app", phase("two", v1.StageVerifying))

			s.KillComponent(t, component) // while stage two is waited for
			s.AwaitAPI(t)
			n.releasePods(t, cluster.Ref("apps/v1", "Deployment", n.namespace, "web"), "Available")
			n.waitReady(t, "app", "app", first)
			if got := len(n.inventory(t, "app")); got != len(many)+1 {
				t.Errorf("%d objects are recorded, want %d", got, len(many)+1)
			}

			n.delete(t, "app")
			s.KillComponent(t, component)
			s.AwaitAPI(t)
			n.gone(t, "app")
			n.absent(t, n.configMap("map-000"), n.configMap("map-199"))
		})
	}
}

// reaches waits until the reconciler has come to a place in its work of the StageSet app.
func (n *tenant) reaches(t *testing.T, place <-chan struct{}) {
	t.Helper()
	n.WaitFor(t, n.ref("app"), func(*unstructured.Unstructured) error {
		select {
		case <-place:
			return nil
		default:
			return errors.New("the reconciler has not come so far")
		}
	})
}

// delicate is work that a reconciler does in more than one request, so that it may die in between.
var delicate = map[string]struct {
	// before makes a release that is Ready, or what is there before the first one.
	before func(t *testing.T, n *tenant)
	// work has the reconciler work, and returns the revision that is applied in the end; at are moments of that.
	work func(t *testing.T, n *tenant) string
	at   []moment
	// after checks what is there when the work is done.
	after func(t *testing.T, n *tenant)
}{
	"taking over the fields of an earlier tool": {
		before: func(t *testing.T, n *tenant) {
			made := n.configMap("a")
			made.Object["data"] = map[string]any{"value": "theirs", "old": "theirs"}
			if err := n.Client.Create(t.Context(), made, client.FieldOwner("kubectl-client-side-apply")); err != nil {
				t.Fatal(err)
			}
		},
		work: func(t *testing.T, n *tenant) string {
			revision := n.source(t, "app", map[string]string{"one/a.yaml": configMap("a", "1"), "two/b.yaml": configMap("b", "1")})
			n.stageSet(t, "app", "retryInterval: 1s"+twoStages("app"))
			return revision
		},
		at: []moment{
			{write: "patch configmaps", holding: "managedFields"}, {write: "patch configmaps", holding: "managedFields", stored: true},
			{write: "patch configmaps", nth: 2, stored: true},
		},
		after: func(t *testing.T, n *tenant) {
			data, _, _ := unstructured.NestedStringMap(n.live(t, n.configMap("a")).Object, "data")
			if diff := cmp.Diff(map[string]string{"value": "1"}, data); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
		},
	},
	"handing over the number of replicas": {
		before: func(t *testing.T, n *tenant) {
			n.ready(t, map[string]string{
				"one/web.yaml": strings.Replace(deployment("web", "1"), "replicas: 1", "replicas: 3", 1), "two/b.yaml": configMap("b", "1"),
			})
		},
		work: func(t *testing.T, n *tenant) string {
			return n.source(t, "app", map[string]string{
				"one/web.yaml": strings.Replace(deployment("web", "1"), "  replicas: 1\n", "", 1), "two/b.yaml": configMap("b", "1"),
			})
		},
		at: []moment{
			{write: "patch deployments"}, {write: "patch deployments", stored: true}, {write: "patch deployments", nth: 2, stored: true},
		},
		after: func(t *testing.T, n *tenant) {
			web := n.live(t, cluster.Ref("apps/v1", "Deployment", n.namespace, "web"))
			if replicas, _, _ := unstructured.NestedInt64(web.Object, "spec", "replicas"); replicas != 3 {
				t.Errorf("%d replicas, want the 3 that there were", replicas)
			}
		},
	},
	"correcting drift": {
		before: func(t *testing.T, n *tenant) {
			n.ready(t, map[string]string{
				"one/a.yaml": documents(configMap("a", "1"), configMap("c", "1")), "two/b.yaml": configMap("b", "1"),
			})
			n.patch(t, n.configMap("a"), `{"data":{"value":"theirs"}}`)
			if err := n.Client.Delete(t.Context(), n.configMap("c")); err != nil {
				t.Fatal(err)
			}
		},
		work: func(t *testing.T, n *tenant) string {
			n.request(t, "app", "correct")
			return n.wait(t, "app").Status.LastAppliedRevisions[n.namespace+"/app"]
		},
		at: []moment{
			{write: "update stageinventories"}, {write: "patch configmaps"}, {write: "patch configmaps", nth: 2, stored: true},
		},
		after: func(t *testing.T, n *tenant) {
			n.wait(t, "app", handled("correct"))
			n.hasValue(t, "a", "1")
			n.hasValue(t, "c", "1")
		},
	},
	"removing a stage": {
		before: func(t *testing.T, n *tenant) {
			n.ready(t, map[string]string{"one/a.yaml": configMap("a", "1"), "two/b.yaml": documents(configMap("b", "1"), configMap("c", "1"))})
		},
		work: func(t *testing.T, n *tenant) string {
			n.stageSet(t, "app", "retryInterval: 1s\nserviceAccountName: "+deployer+
				"\nstages: [{name: one, path: one, sourceRef: {kind: GitRepository, name: app}}]\n")
			return n.source(t, "app", map[string]string{"one/a.yaml": configMap("a", "2")})
		},
		at: []moment{
			{write: "delete configmaps"}, {write: "delete configmaps", stored: true}, {write: "delete configmaps", nth: 2, stored: true},
			{write: "update stageinventories", nth: 2}, {write: "delete stageinventories"}, {write: "delete stageinventories", stored: true},
		},
		after: func(t *testing.T, n *tenant) {
			n.absent(t, n.configMap("b"), n.configMap("c"))
			if diff := cmp.Diff([]string{"one as deployer: ConfigMap a"}, n.inventory(t, "app")); diff != "" {
				t.Errorf("inventory (-want +got):\n%s", diff)
			}
		},
	},
}

// ready makes a release of two stages that is Ready.
func (n *tenant) ready(t *testing.T, files map[string]string) {
	t.Helper()
	revision := n.source(t, "app", files)
	n.stageSet(t, "app", "retryInterval: 1s"+twoStages("app"))
	n.waitReady(t, "app", "app", revision)
}

// I6, I3: whatever a reconciler dies of in the midst of delicate work, its successor brings it to the same end, and nothing
// is left when the StageSet goes.
func TestKilledReconcilerEndsDelicateWork(t *testing.T) {
	s := setup(t)
	lives := s.lives(t)
	for name, work := range delicate {
		for _, at := range work.at {
			t.Run(name+", "+at.String(), func(t *testing.T) {
				n := s.tenant(t)
				work.before(t, n)
				lives.through(t, n, at, func() string { return work.work(t, n) }, func(revision string) {
					n.waitReady(t, "app", "app", revision)
				})
				work.after(t, n)
				n.delete(t, "app")
				n.gone(t, "app")
				n.absent(t, n.configMap("a"), n.configMap("b"), n.configMap("c"), cluster.Ref("apps/v1", "Deployment", n.namespace, "web"))
			})
		}
	}
}

// What runs is kept as it is while nobody serves the artifact any more; only what was never fetched cannot be.
func TestDriftIsCorrectedWhileTheSourceIsGone(t *testing.T) {
	s := setup(t)
	s.stopReconciler(t)
	n := s.tenant(t)
	server := artifacts.Start(t)
	artifact := server.Put("gitrepository", n.namespace, "app", artifacts.TarGz(t, map[string]string{"a.yaml": configMap("a", "1")}))
	publish(t, s.Cluster, n.namespace, "app", artifact)
	life := startReconciler(t, s.Cluster, "127.0.0.1")
	n.stageSet(t, "app", "retryInterval: 1s"+oneStage("app"))
	n.waitReady(t, "app", "app", artifact.Revision)

	server.Close()
	n.patch(t, n.configMap("a"), `{"data":{"value":"theirs"}}`)
	n.pass(t, "app", "correct")
	n.hasValue(t, "a", "1")

	// Another process has fetched nothing: it says so, and touches nothing.
	if err := life.Stop(); err != nil {
		t.Fatal(err)
	}
	startReconciler(t, s.Cluster, "127.0.0.1")
	n.patch(t, n.configMap("a"), `{"data":{"value":"theirs"}}`)
	n.request(t, "app", "report")
	n.wait(t, "app", handled("report"), cluster.Condition(v1.ConditionReady, "False", v1.ReasonArtifactFailed),
		messageHas("still running "))
	n.hasValue(t, "a", "theirs")
}

// A release that runs needs no source-controller: it ends, and is kept as it is. One that comes back with an empty storage
// brings the next release.
func TestReleaseRunsOnWithoutSourceController(t *testing.T) {
	s := setup(t)
	s.ownReconciler(t)
	n := s.tenant(t)
	repository := n.gitRepository(t, "app")
	first := repository.push(t, map[string]string{"one/web.yaml": heldDeployment("web", "1"), "two/a.yaml": configMap("a", "1")})
	n.stageSet(t, "app", twoStages("app"))
	n.wait(t, "app", phase("one", v1.StageVerifying))

	s.killSourceController()
	n.releasePods(t, cluster.Ref("apps/v1", "Deployment", n.namespace, "web"), "Available")
	n.waitReady(t, "app", "app", first)
	n.patch(t, n.configMap("a"), `{"data":{"value":"theirs"}}`)
	n.pass(t, "app", "correct")
	n.hasValue(t, "a", "1")

	s.sourceController(t)
	second := repository.push(t, map[string]string{"two/a.yaml": configMap("a", "2")})
	n.waitReady(t, "app", "app", second)
	n.hasValue(t, "a", "2")
}

// T-61: an aggregated API that is down fails only those who need it.
func TestDeadAggregatedAPIIsNobodyElsesProblem(t *testing.T) {
	n := shared(t).tenant(t)
	group := n.namespace + ".dead.example"
	service := cluster.Ref("apiregistration.k8s.io/v1", "APIService", "", "v1."+group)
	n.Apply(t, fmt.Sprintf(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.%[1]s}
spec:
  group: %[1]s
  version: v1
  insecureSkipTLSVerify: true
  groupPriorityMinimum: 1000
  versionPriority: 15
  service: {namespace: %[2]s, name: nobody}`, group, n.namespace))
	n.deleteAfter(t, service)
	n.WaitFor(t, service, cluster.Condition("Available", "False"))
	kind := n.gadgets(t) // discovered while the other group is dead
	revision := n.source(t, "app", map[string]string{
		"a.yaml": documents(configMap("a", "1"), kind.manifest("gear")),
	})
	n.stageSet(t, "app", oneStage("app"))
	n.condition(t, kind.ref(n.namespace, "gear"), "Ready", "True", "Wound", "it ticks")
	n.waitReady(t, "app", "app", revision)

	n.source(t, "needs", map[string]string{
		"dead.yaml": "apiVersion: " + group + "/v1\nkind: Ghost\nmetadata: {name: ghost}\n",
	})
	n.stageSet(t, "needs", oneStage("needs"))
	n.wait(t, "needs", cluster.Condition(v1.ConditionReady, "False"), messageHas(group))
}

// A kind that does not exist yet is named, and the release goes through by itself once it does.
func TestReleaseWaitsForAKindThatAppearsLater(t *testing.T) {
	n := shared(t).tenant(t)
	kind := gadgetKind{group: n.namespace + ".example.com"}
	revision := n.source(t, "app", map[string]string{"gear.yaml": kind.manifest("gear")})
	n.stageSet(t, "app", "retryInterval: 1s"+oneStage("app"))
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False"), messageHas("Gadget"), messageHas("gear.yaml:1"))
	n.gadgets(t)
	n.condition(t, kind.ref(n.namespace, "gear"), "Ready", "True", "Wound", "it ticks")
	n.waitReady(t, "app", "app", revision)
}

// A quota lets each object pass by itself, in dry-runs, and not all of them in the end: what came to be is recorded, what is
// missing is named, and the release goes through once there is room.
func TestQuotaThatIsExceededAtTheApply(t *testing.T) {
	n := shared(t).tenant(t)
	n.WaitFor(t, n.configMap("kube-root-ca.crt")) // counts too
	quota := func(configMaps int) string {
		return fmt.Sprintf("{apiVersion: v1, kind: ResourceQuota, metadata: {name: quota, namespace: %s}, spec: {hard: {configmaps: %q}}}",
			n.namespace, fmt.Sprint(configMaps))
	}
	n.Apply(t, quota(3))
	n.WaitFor(t, cluster.Ref("v1", "ResourceQuota", n.namespace, "quota"), field("1", "status", "used", "configmaps"))
	revision := n.source(t, "app", map[string]string{
		"all.yaml": documents(configMap("a", "1"), configMap("b", "1"), configMap("c", "1"), configMap("d", "1")),
	})
	n.stageSet(t, "app", "retryInterval: 1s"+oneStage("app"))
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonApplyFailed), messageHas("exceeded quota"))
	if got := len(n.inventory(t, "app")); got != 4 {
		t.Errorf("%d objects are recorded, want all 4 that may have come to be", got)
	}
	n.Apply(t, quota(9))
	n.waitReady(t, "app", "app", revision)
}

// An object that left and does not go is named, stays recorded, and is waited for without an end.
func TestObjectThatIsStuckInDeletionIsWaitedFor(t *testing.T) {
	n := shared(t).tenant(t)
	first := n.source(t, "app", map[string]string{"all.yaml": documents(configMap("stays", "1"), configMap("stuck", "1"))})
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", first)
	n.hold(t, n.configMap("stuck"))
	second := n.source(t, "app", map[string]string{"all.yaml": configMap("stays", "2")})
	n.wait(t, "app", n.revision("lastAttemptedRevisions", "app", second), messageHas("ConfigMap "+n.namespace+"/stuck"))
	n.WaitFor(t, n.configMap("stuck"), beingDeleted)
	recorded := []string{"app as deployer: ConfigMap stays", "app as deployer: ConfigMap stuck"}
	if diff := cmp.Diff(recorded, n.inventory(t, "app")); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}
	n.release(t, n.configMap("stuck"))
	n.waitReady(t, "app", "app", second)
	cluster.Eventually(t, func(ctx context.Context) error {
		lines, err := n.recorded(ctx, "app")
		if diff := cmp.Diff(recorded[:1], lines); err == nil && diff != "" {
			return fmt.Errorf("inventory in the end (-want +got):\n%s", diff)
		}
		return err
	})
}

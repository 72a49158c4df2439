package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/artifacts"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/gitserver"
)

// deployer is the account of a tenant that its StageSets name.
const deployer = "deployer"

// tenant is a namespace of a test.
type tenant struct {
	*suite
	namespace string
}

// tenant is a new namespace with the account deployer, which is bound to the role edit there.
func (s *suite) tenant(t testing.TB) *tenant {
	t.Helper()
	n := s.bareTenant(t)
	n.account(t, deployer, "edit")
	return n
}

// bareTenant is a new namespace with nothing in it.
func (s *suite) bareTenant(t testing.TB) *tenant {
	t.Helper()
	n := &tenant{suite: s, namespace: s.Namespace(t, "team")}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what the shared reconciler said of %s:\n%s", n.namespace, n.log())
		}
	})
	return n
}

// log is what the shared reconciler has written about the tenant.
func (n *tenant) log() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.reconciler == nil {
		return ""
	}
	var lines []string
	for line := range strings.Lines(n.reconciler.Output()) {
		if strings.Contains(line, n.namespace) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// account makes an account and binds it, in the tenant's namespace alone, to cluster roles.
func (n *tenant) account(t testing.TB, name string, clusterRoles ...string) {
	t.Helper()
	n.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: ServiceAccount, metadata: {name: %s, namespace: %s}}", name, n.namespace))
	for _, role := range clusterRoles {
		n.grant(t, n.namespace, name, "ClusterRole", role)
	}
}

// grant binds an account of the tenant, in any namespace, to a role there (kind Role) or to a cluster role.
func (n *tenant) grant(t testing.TB, namespace, account, kind, role string) {
	t.Helper()
	n.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: %[1]s-%[2]s-%[4]s, namespace: %[5]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %[3]s, name: %[4]s}
subjects: [{kind: ServiceAccount, name: %[2]s, namespace: %[1]s}]`, n.namespace, account, kind, role, namespace))
}

// by wants the requests of an account of the tenant.
func (n *tenant) by(account string) func(cluster.AuditEvent) bool {
	return cluster.ByAccount(n.namespace, account)
}

// objectYAML is one object as YAML, from YAML of its spec.
func objectYAML(t testing.TB, apiVersion, kind, namespace, name, spec string) string {
	t.Helper()
	object := cluster.Ref(apiVersion, kind, namespace, name)
	var content map[string]any
	if err := yaml.Unmarshal([]byte(spec), &content); err != nil {
		t.Fatalf("%v in\n%s", err, spec)
	}
	object.Object["spec"] = content
	text, err := yaml.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// stageSetYAML is a StageSet of the tenant as YAML, from YAML of its spec.
func (n *tenant) stageSetYAML(t testing.TB, name, spec string) string {
	t.Helper()
	return objectYAML(t, v1.GroupVersion.String(), "StageSet", n.namespace, name, spec)
}

// stageSet applies a StageSet, given YAML of its spec.
func (n *tenant) stageSet(t testing.TB, name, spec string) {
	t.Helper()
	n.Apply(t, n.stageSetYAML(t, name, spec))
}

// request asks for a pass of a StageSet.
func (n *tenant) request(t testing.TB, name, token string) {
	t.Helper()
	set := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: name}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1.AnnotationRequestedAt, token)
	if err := n.Client.Patch(t.Context(), set, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// wait waits until a StageSet is as all predicates want it.
func (n *tenant) wait(t testing.TB, name string, predicates ...cluster.Predicate) *v1.StageSet {
	t.Helper()
	live := n.WaitFor(t, cluster.Ref(v1.GroupVersion.String(), "StageSet", n.namespace, name), predicates...)
	set := &v1.StageSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, set); err != nil {
		t.Fatal(err)
	}
	return set
}

// waitReady waits until a StageSet has applied the revision of the source of that name, and is Ready.
func (n *tenant) waitReady(t testing.TB, name, source, revision string) *v1.StageSet {
	t.Helper()
	return n.wait(t, name, cluster.Condition(v1.ConditionReady, "True", v1.ReasonSucceeded),
		n.revision("lastAppliedRevisions", source, revision))
}

// waitRefused waits until a StageSet is not Ready, for the reason, and returns the message.
func (n *tenant) waitRefused(t testing.TB, name, reason string) string {
	t.Helper()
	return readyMessage(n.wait(t, name, cluster.Condition(v1.ConditionReady, "False", reason)))
}

// readyMessage is the message of the condition Ready.
func readyMessage(set *v1.StageSet) string {
	if ready := meta.FindStatusCondition(set.Status.Conditions, v1.ConditionReady); ready != nil {
		return ready.Message
	}
	return ""
}

// revision holds when a field of the status (lastAppliedRevisions, lastAttemptedRevisions) has the revision of a source.
func (n *tenant) revision(field, source, revision string) cluster.Predicate {
	return func(set *unstructured.Unstructured) error {
		revisions, _, err := unstructured.NestedStringMap(set.Object, "status", field)
		if err != nil {
			return err
		}
		if got := revisions[n.namespace+"/"+source]; got != revision {
			return fmt.Errorf("status.%s has %q of source %s, want %q", field, got, source, revision)
		}
		return nil
	}
}

// phase holds when a stage is in the phase.
func phase(stage string, phase v1.StagePhase) cluster.Predicate {
	return func(object *unstructured.Unstructured) error {
		set := &v1.StageSet{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, set); err != nil {
			return err
		}
		for _, status := range set.Status.Stages {
			if status.Name == stage && status.Phase == phase {
				return nil
			}
		}
		return fmt.Errorf("stage %s is not %s: %+v", stage, phase, set.Status.Stages)
	}
}

// handled holds when a request for a pass was acted on.
func handled(token string) cluster.Predicate {
	return func(set *unstructured.Unstructured) error {
		got, _, err := unstructured.NestedString(set.Object, "status", "lastHandledReconcileAt")
		if err != nil || got == token {
			return err
		}
		return fmt.Errorf("the last request that was handled is %q, want %q", got, token)
	}
}

// messageHas holds when the message of the condition Ready contains the text.
func messageHas(text string) cluster.Predicate {
	return func(object *unstructured.Unstructured) error {
		set := &v1.StageSet{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, set); err != nil {
			return err
		}
		if message := readyMessage(set); !strings.Contains(message, text) {
			return fmt.Errorf("the message of Ready is %q, want it to contain %q", message, text)
		}
		return nil
	}
}

// waitEvent waits for an event of that type and reason about a StageSet whose note contains the text.
func (n *tenant) waitEvent(t testing.TB, name, kind, reason, text string) {
	t.Helper()
	cluster.Eventually(t, func(ctx context.Context) error {
		var events eventsv1.EventList
		if err := n.Client.List(ctx, &events, client.InNamespace(n.namespace)); err != nil {
			return err
		}
		var seen []string
		for _, event := range events.Items {
			if event.Regarding.Kind != "StageSet" || event.Regarding.Name != name {
				continue
			}
			if event.Type == kind && event.Reason == reason && strings.Contains(event.Note, text) {
				return nil
			}
			seen = append(seen, fmt.Sprintf("%s %s: %s", event.Type, event.Reason, event.Note))
		}
		slices.Sort(seen)
		return fmt.Errorf("no event %s %s about %q; there are:\n%s", kind, reason, text, strings.Join(seen, "\n"))
	})
}

// releasePods lets Pods become Ready that are held back, also those that are still to be made, until the object (a
// Deployment, a Job) has the condition.
func (n *tenant) releasePods(t testing.TB, object *unstructured.Unstructured, condition string) {
	t.Helper()
	n.WaitFor(t, object, func(live *unstructured.Unstructured) error {
		n.ReleasePods(t, n.namespace)
		return cluster.Condition(condition, "True")(live)
	})
}

// source makes, or changes, a source of the tenant that has the files (content by path), and returns its revision. It is
// a GitRepository that source-controller leaves alone.
func (n *tenant) source(t testing.TB, name string, files map[string]string) string {
	t.Helper()
	artifact := n.Artifacts.Put("gitrepository", n.namespace, name, artifacts.TarGz(t, files))
	publish(t, n.Cluster, n.namespace, name, artifact)
	return artifact.Revision
}

// publish makes a GitRepository have the artifact, as source-controller would.
func publish(t testing.TB, c *cluster.Cluster, namespace, name string, artifact artifacts.Artifact) {
	t.Helper()
	admin := c.Client(t, sourcev1.AddToScheme)
	repository := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	_, err := controllerutil.CreateOrPatch(t.Context(), admin, repository, func() error {
		repository.Spec.URL = "https://git.invalid/" + name
		repository.Spec.Interval = metav1.Duration{Duration: time.Hour}
		repository.Spec.Suspend = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	before := repository.DeepCopy()
	repository.Status.ObservedGeneration = repository.Generation
	repository.Status.Artifact = &fluxmeta.Artifact{
		URL: artifact.URL, Path: artifact.Path, Digest: artifact.Digest, Revision: artifact.Revision,
		Size: ptr.To(int64(artifact.Size)), LastUpdateTime: metav1.Now(),
	}
	if err := admin.Status().Patch(t.Context(), repository, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// repository is a Git repository with the GitRepository of a tenant that follows it.
type repository struct {
	*gitserver.Repository
	tenant *tenant
	name   string
}

// gitRepository makes a repository and the GitRepository of that name, for the real source-controller to follow.
func (n *tenant) gitRepository(t testing.TB, name string) *repository {
	t.Helper()
	n.sourceController(t)
	created, err := n.gitServer(t).Create(t.Context(), n.namespace+"-"+name)
	if err != nil {
		t.Fatal(err)
	}
	return &repository{Repository: created, tenant: n, name: name}
}

// push commits files (content by path) and deletions, and waits until source-controller has the commit. It returns the
// revision as Flux writes it.
func (r *repository) push(t testing.TB, files map[string]string, deleted ...string) string {
	t.Helper()
	commit := r.MustCommit(t, files, deleted...)
	// What a webhook receiver of Flux does after a push.
	r.tenant.Apply(t, fmt.Sprintf(`
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata:
  name: %[1]s
  namespace: %[2]s
  annotations: {reconcile.fluxcd.io/requestedAt: %[3]q}
spec: {url: %[4]q, interval: 1h, ref: {branch: %[5]s}}`, r.name, r.tenant.namespace, commit, r.URL(), gitserver.Branch))
	revision := gitserver.Branch + "@sha1:" + commit
	r.tenant.WaitFor(t, cluster.Ref("source.toolkit.fluxcd.io/v1", "GitRepository", r.tenant.namespace, r.name),
		hasArtifact(revision))
	return revision
}

// hasArtifact holds when the artifact of a source has the revision.
func hasArtifact(revision string) cluster.Predicate {
	return func(source *unstructured.Unstructured) error {
		got, _, err := unstructured.NestedString(source.Object, "status", "artifact", "revision")
		if err != nil || got == revision {
			return err
		}
		return fmt.Errorf("the artifact has revision %q, want %q", got, revision)
	}
}

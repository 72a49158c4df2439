package chart_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/api/crds"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// From a namespace without anything to a release that is Ready, through upgrades and a rollback that nobody who writes
// StageSets notices, to an uninstallation that leaves nothing but what is to be kept; and the same again.
func TestLifeOfARelease(t *testing.T) {
	withoutCRDs(t)
	r := prepare(t, "life", asksForLists)
	service := process.FreePort(t)
	r.values = append(r.values, valuesFile(t, fmt.Sprintf("webhook: {servicePort: %d}", service)))
	rollout := r.rollsOut(t, service)
	mark := r.Audit(t)
	r.install(t)
	r.route(t)
	rollout.replace(t, r, rollout.port)
	reconciler := r.start(t, "reconciler")
	n := r.tenant(t)
	app := n.stageSet("app")
	revision := n.commit(t, "app", "1")
	n.create(t, app)
	n.ready(t, app, revision)

	t.Run("what must be is refused", func(t *testing.T) {
		nobody := n.stageSet("nobody")
		unstructured.RemoveNestedField(nobody.Object, "spec", "serviceAccountName")
		err := r.client.Create(t.Context(), nobody)
		if want := "service-account-required/stages"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want a refusal with %q", err, want)
		}
	})
	t.Run("only restricted Pods are admitted", func(t *testing.T) { r.refusesOtherPods(t) })
	t.Run("what is granted is used", func(t *testing.T) { n.checkGrants(t, mark, components...) }) // T-18
	n.upgrades(t, app, rollout)                                                                    // the program of the last of them stays for what follows
	t.Run("an emergency ends with an upgrade", func(t *testing.T) { r.recovers(t) })
	if err := reconciler.Stop(); err != nil {
		t.Error(err)
	}
	t.Run("an uninstallation leaves what is to be kept", func(t *testing.T) { r.uninstalls(t) })
	n.live(t, "v1", "ConfigMap", "app")

	secret := r.certificate(t)
	revision = n.commit(t, "app", "2")
	r.install(t)
	r.route(t)
	r.start(t, "reconciler")
	n.ready(t, app, revision)
	if diff := cmp.Diff(secret, r.certificate(t)); diff != "" {
		t.Errorf("the certificate has changed (-before +after):\n%s", diff)
	}
	n.delete(t, app)
	n.WaitGone(t, cluster.Ref("v1", "ConfigMap", n.namespace, "app"))
}

// asksForLists has the clients of both programs begin a watch with a list, as they do with an API server that does not
// stream what there is already: then it shows whether they may.
const asksForLists = `
admission: {env: [{name: KUBE_FEATURE_WatchListClient, value: "false"}]}
reconciler: {env: [{name: KUBE_FEATURE_WatchListClient, value: "false"}]}`

// withoutCRDs takes away those that an earlier test has left, with helm's note of whose they are.
func withoutCRDs(t *testing.T) {
	t.Helper()
	c := cluster.Shared(t)
	entries, err := crds.FS.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		content, err := crds.FS.ReadFile(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		crd := parse(t, string(content))[0]
		if err := client.IgnoreNotFound(c.Client(t).Delete(t.Context(), crd)); err != nil {
			t.Fatal(err)
		}
		c.WaitGone(t, crd)
	}
}

// upgrades changes the release again and again, under constant writes, and replaces the admission program each time. P-40:
// what the program has filled in stays.
func (n *tenant) upgrades(t *testing.T, app *unstructured.Unstructured, rollout *rollout) {
	secret, bundles := n.certificate(t), n.bundles(t)
	if len(bundles) != 3 || slices.Contains(bundles, "") {
		t.Fatalf("caBundles before the upgrades: %q", bundles)
	}
	written, stop := n.write(t, app)
	check := func(after string) {
		t.Helper()
		if diff := cmp.Diff(secret, n.certificate(t)); diff != "" {
			t.Errorf("the certificate after %s (-before +after):\n%s", after, diff)
		}
		if diff := cmp.Diff(bundles, n.bundles(t)); diff != "" {
			t.Errorf("caBundles after %s (-before +after):\n%s", after, diff)
		}
	}
	replace := func(port int) {
		t.Helper()
		more(t, written, writes)
		rollout.replace(t, n.release, port)
		more(t, written, writes)
	}
	for number := range upgrades {
		port := process.FreePort(t)
		// From the sixth on as Helm 3 does it, with patches that helm computes, in place of server-side apply.
		n.apply(t, "upgrade", "--history-max=0", "--wait=hookOnly", fmt.Sprintf("--server-side=%t", number < upgrades/2),
			"--set", fmt.Sprintf("webhook.deletePolicies=%t", number%2 == 0),
			"--set", fmt.Sprintf("admission.podAnnotations.number=n%d", number),
			"--set", fmt.Sprintf("admission.flags.webhook-port=%d", port),
			"--set", fmt.Sprintf("admission.flags.health-probe-bind-address=:%d", process.FreePort(t)),
			"--set", fmt.Sprintf("admission.flags.metrics-bind-address=:%d", process.FreePort(t)))
		replace(port)
		check(fmt.Sprint("upgrade ", number))
	}
	n.helm(t, "rollback", "1", "--wait", "--timeout", "3m")
	replace(rollout.port)
	check("the rollback")
	stop()
	output := n.helm(t, "get values")
	if strings.Contains(output, "number") {
		t.Errorf("the rollback has kept values of an upgrade:\n%s", output)
	}
}

const (
	upgrades = 10
	// writes there are at least before and after each program is replaced, so that both it and the next have served.
	writes = 10
)

// write changes a StageSet without a pause until stop is called, which fails the test for every change that was refused.
func (n *tenant) write(t *testing.T, app *unstructured.Unstructured) (written *atomic.Int64, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	refused, written := make(chan []string, 1), new(atomic.Int64)
	go func() {
		var failures []string
		for ; ctx.Err() == nil; written.Add(1) {
			patch := fmt.Sprintf(`{"metadata": {"labels": {"write": "n%d"}}}`, written.Load())
			err := n.client.Patch(ctx, app.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
			if err != nil && ctx.Err() == nil {
				failures = append(failures, err.Error())
			}
		}
		refused <- failures
	}()
	return written, func() {
		t.Helper()
		cancel()
		if failures := <-refused; len(failures) > 0 {
			t.Errorf("%d of %d writes were refused, the first: %s", len(failures), written.Load(), failures[0])
		}
	}
}

// refusesOtherPods shows that those of the release, which run, meet the restricted Pod Security Standard.
func (r *release) refusesOtherPods(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = r.namespace, "unrestricted"
	pod.Spec.Containers = []corev1.Container{{Name: "any", Image: "any"}}
	err := r.client.Create(t.Context(), pod, client.DryRunAll)
	if want := `violates PodSecurity "restricted`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want a refusal with %q", err, want)
	}
}

// recovers does what the notes of the release say to do in an emergency, and undoes it.
func (r *release) recovers(t *testing.T) {
	bundles := r.bundles(t)
	_, command, found := strings.Cut(r.helm(t, "get notes"), "brings them back:\n")
	if !found {
		t.Fatal("the notes have no emergency")
	}
	newShell(t, r.Kubeconfig).run(t, command)
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		r.WaitGone(t, cluster.Ref("admissionregistration.k8s.io/v1", kind, "", r.name+"-admission"))
	}
	r.apply(t, "upgrade")
	cluster.Eventually(t, func(context.Context) error {
		if diff := cmp.Diff(bundles, r.bundles(t)); diff != "" {
			return fmt.Errorf("caBundles (-before +after):\n%s", diff)
		}
		return nil
	})
}

// certificate is what the Secret of the webhooks' certificate holds.
func (r *release) certificate(t *testing.T) map[string][]byte {
	t.Helper()
	var secret corev1.Secret
	if err := r.client.Get(t.Context(), r.key("admission-tls"), &secret); err != nil {
		t.Fatal(err)
	}
	return secret.Data
}

// bundles are the caBundles of the webhook configurations.
func (r *release) bundles(t *testing.T) []string {
	t.Helper()
	var bundles []string
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		live := r.WaitFor(t, cluster.Ref("admissionregistration.k8s.io/v1", kind, "", r.name+"-admission"))
		for _, item := range live.Object["webhooks"].([]any) {
			bundle, _, err := unstructured.NestedString(item.(map[string]any), "clientConfig", "caBundle")
			if err != nil {
				t.Fatal(err)
			}
			bundles = append(bundles, bundle)
		}
	}
	return bundles
}

// uninstalls checks what is gone and what stays. P-31: the webhooks go before what answers them, and nothing holds them.
func (r *release) uninstalls(t *testing.T) {
	installed := parse(t, r.helm(t, "get manifest"))
	mark := r.Audit(t)
	r.helm(t, "uninstall", "--wait")
	var kept []string
	for _, object := range installed {
		namespace := object.GetNamespace()
		err := r.client.Get(t.Context(), client.ObjectKeyFromObject(object), object)
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("%s in %s: %v", describe(object), namespace, err)
		}
		if err == nil {
			kept = append(kept, object.GetKind()+" "+object.GetName())
		}
	}
	slices.Sort(kept)
	want := []string{
		"CustomResourceDefinition stageinventories.stages.metio.wtf",
		"CustomResourceDefinition stagesetpolicies.stages.metio.wtf",
		"CustomResourceDefinition stagesets.stages.metio.wtf",
		"Secret " + r.name + "-admission-tls",
	}
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Errorf("what stays (-want +got):\n%s", diff)
	}
	var order []string
	for _, event := range mark.Since(t, cluster.ByUser("admin"), cluster.Writes) {
		if event.Verb == "delete" {
			order = append(order, event.Resource)
		}
	}
	for _, webhook := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		if at := slices.Index(order, webhook); at < 0 || at > slices.Index(order, "deployments") {
			t.Errorf("%s are not deleted before the Deployments: %v", webhook, order)
		}
	}
}

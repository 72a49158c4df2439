package admission_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/e2e/cluster"
)

// validSpec is what no built-in rule has anything against, invalidSpec breaks all that refuse.
const (
	validSpec = `
serviceAccountName: deployer
stages:
- {name: one, sourceRef: {kind: GitRepository, name: app}}
`
	invalidSpec = `
kubeConfig: {secretRef: {name: a}, configMapRef: {name: b}}
dependsOn: [{name: invalid}, {name: other, namespace: elsewhere}]
stages:
- {name: one, sourceRef: {kind: GitRepository, name: app, namespace: elsewhere}}
`
)

// violated are the rules that invalidSpec breaks, with the fields that they name, in the order of the answer.
var violated = []string{
	"kubeconfig-one-reference/one-reference spec.kubeConfig",
	"no-cross-namespace-refs/depends-on spec.dependsOn[*].namespace",
	"no-cross-namespace-refs/sources spec.stages[*].sourceRef.namespace",
	"no-self-dependency/self spec.dependsOn",
	"service-account-required/depends-on spec.serviceAccountName",
	"service-account-required/kubeconfig spec.serviceAccountName",
	"service-account-required/stages spec.serviceAccountName",
}

func TestDenialHasEveryViolation(t *testing.T) {
	i := install(t)
	i.installWebhooks(t)
	r := i.start(t)
	for name, options := range map[string][]client.CreateOption{
		"for real": nil,
		"dry run":  {client.DryRunAll}, // P-45
	} {
		t.Run(name, func(t *testing.T) {
			err := i.client.Create(t.Context(), i.stageSet(t, "invalid", invalidSpec), options...)
			var status apierrors.APIStatus
			if !errors.As(err, &status) {
				t.Fatalf("got %v, want a refusal", err)
			}
			got := status.Status()
			if got.Reason != metav1.StatusReasonInvalid || got.Code != http.StatusUnprocessableEntity {
				t.Errorf("reason %s, code %d", got.Reason, got.Code)
			}
			if got.Details.Kind != "StageSet" || got.Details.Name != "invalid" {
				t.Errorf("details are about %s %s", got.Details.Kind, got.Details.Name)
			}
			var found, messages []string
			for _, cause := range got.Details.Causes {
				rule, _, _ := strings.Cut(cause.Message, ": ")
				found = append(found, rule+" "+cause.Field)
				messages = append(messages, cause.Message)
			}
			if diff := cmp.Diff(violated, found); diff != "" {
				t.Errorf("causes (-want +got):\n%s", diff)
			}
			if !strings.HasSuffix(got.Message, ": "+strings.Join(messages, "\n")) {
				t.Errorf("the message does not have the same lines as the causes:\n%s", got.Message)
			}
		})
	}
	counted := r.count(t, `stageset_admission_seconds_count{operation="CREATE",verdict="denied",webhook="/stagesets/validate"}`)
	if counted != 1 {
		t.Errorf("%d denials are counted, want the one that was not a dry run", counted)
	}
}

func TestKubectlShowsEveryViolation(t *testing.T) {
	i := install(t)
	i.installWebhooks(t)
	i.start(t)
	output, err := i.kubectl(t, i.stageSet(t, "invalid", invalidSpec), "apply", "-f", "-")
	if err == nil {
		t.Fatalf("kubectl succeeded: %s", output)
	}
	for _, rule := range violated {
		rule, field, _ := strings.Cut(rule, " ")
		if !strings.Contains(output, "* "+field+": "+rule+": ") {
			t.Errorf("the output lacks %s at %s:\n%s", rule, field, output)
		}
	}
}

// P-41, P-42: what is unset is filled in once, is said to be, and is no change when it is applied again.
func TestDefaultsAreFilledInOnce(t *testing.T) {
	i := install(t)
	i.installWebhooks(t)
	i.start(t, "--policy-config="+i.policyConfig(t, "defaultServiceAccount: from-config"))
	const withoutAccount = `
stages:
- {name: one, sourceRef: {kind: GitRepository, name: app}}
`
	apply := func() *unstructured.Unstructured {
		object := i.stageSet(t, "defaulted", withoutAccount)
		apply := client.ApplyConfigurationFromUnstructured(object)
		if err := i.client.Apply(t.Context(), apply, client.FieldOwner("tenant")); err != nil {
			t.Fatal(err)
		}
		return object
	}
	first := apply()
	account, _, _ := unstructured.NestedString(first.Object, "spec", "serviceAccountName")
	by := first.GetAnnotations()["stages.metio.wtf/defaulted-by"]
	if account != "from-config" || by != "spec.serviceAccountName=default-service-account" {
		t.Errorf("account %q, defaulted by %q", account, by)
	}
	if second := apply(); second.GetResourceVersion() != first.GetResourceVersion() {
		t.Errorf("applying it again changed it:\n%s", cmp.Diff(first.Object, second.Object))
	}
}

// T-109, P-19, P-24: rules that were not there when an object was stored lock nobody out of it.
func TestWhatIsStoredAlreadyCanStillBeOperated(t *testing.T) {
	i := install(t)
	object := i.stageSet(t, "invalid", invalidSpec)
	object.SetFinalizers([]string{"stages.metio.wtf/finalizer"})
	if err := i.client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	i.installWebhooks(t)
	i.start(t, "--policy-config="+i.policyConfig(t, "defaultServiceAccount: from-config"))
	const orphan = `{"spec": {"deletionPolicy": "Orphan"}}`
	steps := []struct {
		name, patch string
		denied      string // part of the refusal; empty when it is allowed
	}{
		{name: "label", patch: `{"metadata": {"labels": {"a": "b"}}}`},
		{name: "annotation", patch: `{"metadata": {"annotations": {"a": "b"}}}`},
		{name: "reconcile now", patch: `{"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": "now"}}}`},
		{name: "suspend", patch: `{"spec": {"suspend": true}}`},
		{name: "resume", patch: `{"spec": {"suspend": false}}`, denied: "kubeconfig-one-reference/one-reference"},
		{name: "another change of the spec", patch: `{"spec": {"interval": "1h"}}`, denied: "no-self-dependency/self"},
		{name: "orphan while nobody deletes it", patch: orphan, denied: "no-self-dependency/self"},
		{name: "another finalizer", patch: `{"metadata": {"finalizers": ["stages.metio.wtf/finalizer", "example.com/hold"]}}`},
		{name: "delete"},
		{name: "label while it is deleted", patch: `{"metadata": {"labels": {"a": "c"}}}`},
		{name: "interval while it is deleted", patch: `{"spec": {"interval": "2h"}}`, denied: "stageset-admission/being-deleted"},
		{name: "even what would be valid", patch: `{"spec": ` + validJSON(t) + `}`, denied: "stageset-admission/being-deleted"},
		{name: "orphan while it is deleted", patch: orphan},
		{name: "finalizers removed", patch: `{"metadata": {"finalizers": null}}`},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			var err error
			if step.patch == "" {
				err = i.client.Delete(t.Context(), object.DeepCopy())
			} else {
				patched := cluster.Ref("stages.metio.wtf/v1", "StageSet", i.tenant, "invalid")
				err = i.client.Patch(t.Context(), patched, client.RawPatch(types.MergePatchType, []byte(step.patch)))
				account, set, _ := unstructured.NestedString(patched.Object, "spec", "serviceAccountName")
				if err == nil && set {
					t.Errorf("the update changed the account too, to %s", account)
				}
			}
			if (err == nil) != (step.denied == "") || err != nil && !strings.Contains(err.Error(), step.denied) {
				t.Errorf("got %v, want a refusal with %q", err, step.denied)
			}
		})
	}
	i.WaitGone(t, object)
}

// T-109: suspending works for somebody who only ever uses kubectl apply, which also writes an annotation.
func TestStoredStageSetIsSuspendedByKubectlApply(t *testing.T) {
	i := install(t)
	object := i.stageSet(t, "invalid", invalidSpec)
	if output, err := i.kubectl(t, object, "apply", "-f", "-"); err != nil {
		t.Fatal(output)
	}
	i.installWebhooks(t)
	i.start(t)
	if err := unstructured.SetNestedField(object.Object, true, "spec", "suspend"); err != nil {
		t.Fatal(err)
	}
	if output, err := i.kubectl(t, object, "apply", "-f", "-"); err != nil {
		t.Error(output)
	}
}

// P-28, P-29: a namespace that is being deleted depends neither on the rules nor on the webhook being there.
func TestNamespaceIsDeletedWhateverTheWebhookSays(t *testing.T) {
	for name, running := range map[string]bool{"running": true, "down": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := install(t)
			object := i.stageSet(t, "invalid", invalidSpec)
			object.SetFinalizers([]string{"stages.metio.wtf/finalizer"})
			if err := i.client.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			operations := []string{"CREATE", "UPDATE"}
			if running {
				operations = append(operations, "DELETE")
			}
			i.installWebhooks(t, operations...)
			if running {
				i.start(t)
			}
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: i.tenant}}
			if err := i.client.Delete(t.Context(), namespace); err != nil {
				t.Fatal(err)
			}
			i.WaitFor(t, object, func(live *unstructured.Unstructured) error {
				if live.GetDeletionTimestamp() == nil {
					return errors.New("it is not being deleted")
				}
				return nil
			})
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`))
			if err := i.client.Patch(t.Context(), object.DeepCopy(), patch); err != nil {
				t.Errorf("removing the finalizer: %v", err)
			}
			i.WaitGone(t, namespace)
		})
	}
}

// kubectl runs kubectl as the administrator with an object, if there is one, as its input.
func (i *installation) kubectl(t *testing.T, object *unstructured.Unstructured, arguments ...string) (string, error) {
	t.Helper()
	path, err := cluster.Binary("controlplane")
	if err != nil {
		t.Fatal(err)
	}
	arguments = append([]string{"kubectl", "--kubeconfig", i.Kubeconfig}, arguments...)
	command := exec.CommandContext(t.Context(), path, arguments...)
	if object != nil {
		input, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		command.Stdin = bytes.NewReader(input)
	}
	output, err := command.CombinedOutput()
	return string(output), err
}

func (i *installation) policyConfig(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy-config.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func validJSON(t *testing.T) string {
	t.Helper()
	content, err := yaml.YAMLToJSON([]byte(validSpec))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// requests is how many requests a webhook of a replica, "default" or "validate", has answered about StageSets.
func (r *replica) requests(t *testing.T, webhook string) int {
	t.Helper()
	return r.count(t, `controller_runtime_webhook_requests_total{code="200",webhook="/stagesets/`+webhook+`"}`)
}

// count is a counter of a replica, 0 when it does not exist.
func (r *replica) count(t testing.TB, series string) int {
	t.Helper()
	return int(r.measure(t)[series])
}

// scrape is what a replica measures.
func (r *replica) scrape(t testing.TB) string {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet,
		fmt.Sprintf("http://127.0.0.1:%d/metrics", r.metrics), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// measure is all series of a replica.
func (r *replica) measure(t testing.TB) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	lines := bufio.NewScanner(strings.NewReader(r.scrape(t)))
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		series, value, _ := strings.Cut(lines.Text(), "} ")
		if value == "" {
			series, value, _ = strings.Cut(lines.Text(), " ")
		} else {
			series += "}"
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		found[series] = number
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// P-32: a roll-out is not noticed by anybody: each replica is replaced, under constant requests.
func TestNoRequestFailsDuringARollingRestart(t *testing.T) {
	i := install(t)
	i.installWebhooks(t)
	i.failClosed(t)
	replicas, b := i.behindBalancer(t, 2)
	l := i.load(t, 8)
	l.more(t, 100)
	for _, old := range replicas {
		b.add(i.startAt(t, process.FreePort(t), "/readyz", drainDelay))
		if err := old.Stop(); err != nil {
			t.Error(err)
		}
		l.more(t, 100)
	}
	l.stop(t)
	for n, old := range replicas {
		if state := old.State(); state == nil || state.ExitCode() != 0 {
			t.Errorf("replica %d ended with %v", n, state)
		}
		if old.answered() == 0 {
			t.Errorf("replica %d never served, so that this test shows nothing", n)
		}
	}
}

// P-29: what is too much is refused at once, in a way that clients understand: they come back by themselves, and nobody
// fails.
func TestClientsComeBackWhenTheWebhookIsBusy(t *testing.T) {
	i := install(t)
	i.installWebhooks(t)
	i.failClosed(t)
	i.start(t, "--max-in-flight=1")
	refused := i.refusal(t)
	var status metav1.Status
	if err := json.Unmarshal(refused.body, &status); err != nil {
		t.Fatalf("%v: %s", err, refused.body)
	}
	if status.Reason != metav1.StatusReasonTooManyRequests || refused.retryAfter != "1" {
		t.Errorf("reason %s, Retry-After %q: %s", status.Reason, refused.retryAfter, status.Message)
	}
	l := i.load(t, 8)
	l.more(t, 100)
	l.stop(t)
}

// P-31: when nothing helps any more, the webhook is gone with what docs/policies.md says to delete: nothing holds it, and
// nothing brings it back, the program included.
func TestEmergencySwitch(t *testing.T) {
	i := install(t)
	i.installWebhooks(t)
	if err := i.start(t).Stop(); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, func(ctx context.Context) error {
		err := i.client.Create(ctx, i.stageSet(t, "valid", validSpec), client.DryRunAll)
		return refused(err, "failed calling webhook")
	})
	for _, kind := range []string{mutating, validating} {
		if err := i.client.Delete(t.Context(), i.configuration(kind)); err != nil {
			t.Fatal(err)
		}
		i.WaitGone(t, i.configuration(kind))
	}
	cluster.Eventually(t, func(ctx context.Context) error {
		return i.client.Create(ctx, i.stageSet(t, "valid", validSpec), client.DryRunAll)
	})
	mark := i.Audit(t)
	r := i.startAt(t, i.port, "/healthz")
	cluster.Eventually(t, func(ctx context.Context) error {
		return contains(probe(ctx, t, r), "ValidatingWebhookConfiguration "+i.name+"-admission does not exist")
	})

	// Installed again they are looked after again. Whoever repairs the one has seen that the other is gone, and left it so.
	hasBundle := func(object *unstructured.Unstructured) error {
		if len(bundleOf(object)) == 0 {
			return errors.New("it has no caBundle")
		}
		return nil
	}
	i.installWebhooks(t)
	i.WaitFor(t, i.configuration(validating), hasBundle)
	i.WaitFor(t, i.configuration(mutating), hasBundle)
	if err := i.client.Delete(t.Context(), i.configuration(mutating)); err != nil {
		t.Fatal(err)
	}
	wipe := client.RawPatch(types.JSONPatchType, []byte(`[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]`))
	if err := i.client.Patch(t.Context(), i.configuration(validating), wipe); err != nil {
		t.Fatal(err)
	}
	i.WaitFor(t, i.configuration(validating), hasBundle)
	err := i.client.Get(t.Context(), client.ObjectKeyFromObject(i.configuration(mutating)), i.configuration(mutating))
	if !apierrors.IsNotFound(err) {
		t.Errorf("the configuration that was deleted: %v, want that it is not found", err)
	}
	for _, event := range mark.Since(t, cluster.ByAccount(i.name, i.name+"-admission")) {
		if event.Code == http.StatusForbidden {
			t.Errorf("refused: %s", event)
		}
	}
}

// answer is one of the API server to a client that does not come back by itself.
type answer struct {
	code       int
	retryAfter string
	body       []byte
}

// refusal creates StageSets, as dry runs, from many clients at once until one of them is told that it was too much.
func (i *installation) refusal(t *testing.T) answer {
	t.Helper()
	web, err := rest.HTTPClientFor(i.Config)
	if err != nil {
		t.Fatal(err)
	}
	content, err := i.stageSet(t, "busy", validSpec).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	url := i.Config.Host + "/apis/stages.metio.wtf/v1/namespaces/" + i.tenant + "/stagesets?dryRun=All"
	var found answer
	cluster.Eventually(t, func(ctx context.Context) error {
		answers := make([]answer, 16)
		var wait sync.WaitGroup
		for n := range answers {
			wait.Go(func() { answers[n] = post(ctx, web, url, content) })
		}
		wait.Wait()
		for _, got := range answers {
			switch got.code {
			case http.StatusCreated:
			case http.StatusTooManyRequests:
				found = got
				return nil
			default:
				t.Fatalf("answer %d: %s", got.code, got.body)
			}
		}
		return errors.New("nobody was refused")
	})
	return found
}

func post(ctx context.Context, web *http.Client, url string, content []byte) answer {
	failed := func(err error) answer { return answer{body: fmt.Append(nil, err)} }
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(content))
	if err != nil {
		return failed(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := web.Do(request)
	if err != nil {
		return failed(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return failed(err)
	}
	return answer{code: response.StatusCode, retryAfter: response.Header.Get("Retry-After"), body: body}
}

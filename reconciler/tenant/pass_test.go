package tenant

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// answersAfter is a server whose answers about kinds take as long.
type answersAfter time.Duration

func (a answersAfter) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := waitFor(request.Context(), time.Duration(a), nil); err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: request,
		Body: io.NopCloser(strings.NewReader(`{"kind":"APIResourceList","resources":[{"name":"configmaps","kind":"ConfigMap"}]}`)),
	}, nil
}

// clientOf is a client of a cluster that has a line, and answers about kinds after a while.
func clientOf(t *testing.T, w *lineWorld, takes time.Duration) *Client {
	t.Helper()
	there := &cluster{
		config: dynamic.ConfigFor(&rest.Config{Host: "https://there", QPS: -1}), turns: newTurns(remoteInFlight), timeout: defaultRequestTimeout,
		kinds: &kinds{clock: clock.RealClock{}, answers: newAnswers(remoteDiscovered)},
	}
	client, err := there.client(Account{Namespace: "a", Name: "deployer"}, answersAfter(takes))
	if err != nil {
		t.Fatal(err)
	}
	client.line, client.call, client.server = w.line("a"), w.answer, "https://there"
	return client
}

// outcomeOf is what becomes of a pass that needs to know a kind.
func outcomeOf(ctx context.Context, client *Client, pass *Pass) carried {
	began := time.Now()
	_, err := client.Resource(pass.Context(ctx), schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	return carried{time.Since(began), err != nil, pass.Postponed(), pass.Slow()}
}

// Who waits for a question about kinds that another pass has asked already is as patient as itself, and learns what that one
// has met.
func TestPassesThatNeedTheSameKind(t *testing.T) {
	const takes = 2 * patience
	for name, tc := range map[string]struct {
		leads, follows bool
		want           carried
	}{
		"a patient one behind one in a hurry": {false, true, carried{takes, false, false, true}},
		"one in a hurry behind a patient one": {true, false, carried{patience, true, true, false}},
		"both in a hurry":                     {false, false, carried{patience, true, true, false}},
		"both patient":                        {true, true, carried{takes, false, false, true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := clientOf(t, newLineWorld(), takes)
				go outcomeOf(t.Context(), client, &Pass{Patient: tc.leads})
				synctest.Wait()
				if diff := cmp.Diff(tc.want, outcomeOf(t.Context(), client, &Pass{Patient: tc.follows})); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				<-time.After(takes)
			})
		})
	}
}

// A pass in a hurry does not wait for long for its turn at another cluster, once; a patient one does.
func TestPassesThatWaitForTheirTurn(t *testing.T) {
	const taken = 2 * patience
	for name, tc := range map[string]struct {
		patient bool
		want    []carried
	}{
		"in a hurry": {false, []carried{{patience, true, true, true}, {0, true, true, true}}},
		"patiently":  {true, []carried{{taken, false, false, false}, {}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := clientOf(t, newLineWorld(), 0)
				for range remoteInFlight / namespaceShare {
					done, err := client.cluster.turns.take(t.Context(), "a")
					if err != nil {
						t.Fatal(err)
					}
					time.AfterFunc(taken, done)
				}
				pass := &Pass{Patient: tc.patient}
				var got []carried
				for range tc.want {
					got = append(got, outcomeOf(t.Context(), client, pass))
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				<-time.After(taken)
			})
		})
	}
}

// A pass that has ended for another cluster may still ask the one that StageSets are in.
func TestPassesThatHaveEndedAskHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := clientOf(t, newLineWorld(), 0)
		client.line = nil
		pass := &Pass{}
		pass.met()
		if diff := cmp.Diff(carried{Postponed: true, Slow: true}, outcomeOf(t.Context(), client, pass)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

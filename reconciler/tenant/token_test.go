package tenant_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clocktesting "k8s.io/utils/clock/testing"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/tenant"
)

// The client is made once and used long after its first token has expired (T-26).
func TestClientOutlivesItsToken(t *testing.T) {
	server := newFaulty(t)
	server.life = 10 * time.Minute
	clock := clocktesting.NewFakePassiveClock(start)
	client := clientFor(t, newClients(t, tenant.Options{Config: server.config(), Clock: clock}), deployer)

	for _, at := range []time.Duration{0, 7 * time.Minute, 15 * time.Minute} {
		clock.SetTime(start.Add(at))
		if err := get(t.Context(), client); err != nil {
			t.Fatalf("after %s: %v", at, err)
		}
	}
	var used []string
	for _, request := range server.seen() {
		used = append(used, request.Token)
	}
	if diff := cmp.Diff([]string{"1", "1", "2"}, used); diff != "" {
		t.Errorf("tokens used (-want +got):\n%s", diff)
	}
}

// Between 75 % and 85 % of its life a token is renewed by use, and nobody waits for that, even if it takes for ever.
func TestTokenIsRefreshedInTheBackground(t *testing.T) {
	server := newFaulty(t)
	asked, release := make(chan struct{}), make(chan struct{})
	server.mint = func(w http.ResponseWriter, r *http.Request, n int) {
		if n > 1 {
			asked <- struct{}{}
			<-release
		}
		server.token(w, r, n)
	}
	clock := clocktesting.NewFakePassiveClock(start)
	clients := newClients(t, tenant.Options{Config: server.config(), Clock: clock})
	client := clientFor(t, clients, deployer)

	clock.SetTime(start.Add(44 * time.Minute))
	if err := get(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	if got := server.minted(); got != 1 {
		t.Fatalf("%d tokens requested after 73 %% of the first one's life, want 1", got)
	}
	clock.SetTime(start.Add(52 * time.Minute))
	for range 3 {
		if err := get(t.Context(), client); err != nil {
			t.Fatal(err)
		}
	}
	<-asked
	close(release)
	cluster.Eventually(t, func(ctx context.Context) error {
		if err := get(ctx, client); err != nil {
			return err
		}
		if seen := server.seen(); seen[len(seen)-1].Token != "2" {
			return errors.New("the second token has not arrived")
		}
		return nil
	})
	var used []string
	for _, request := range server.seen() {
		used = append(used, request.Token)
	}
	if diff := cmp.Diff([]string{"1", "1", "1", "1"}, used[:4]); diff != "" {
		t.Errorf("tokens used while nobody waits (-want +got):\n%s", diff)
	}
	if got := server.minted(); got != 2 {
		t.Errorf("%d tokens requested, want 2", got)
	}
}

// While a refresh fails, the token there is goes on being used, and the server is not asked at every request.
func TestFailedRefreshIsNotRepeatedAtOnce(t *testing.T) {
	server := newFaulty(t)
	server.mint = func(w http.ResponseWriter, r *http.Request, n int) {
		if n > 1 {
			status(w, http.StatusInternalServerError, "InternalError", "etcd is away")
			return
		}
		server.token(w, r, n)
	}
	clock := clocktesting.NewFakePassiveClock(start)
	client := clientFor(t, newClients(t, tenant.Options{Config: server.config(), Clock: clock}), deployer)

	for second := range 60 {
		clock.SetTime(start.Add(52*time.Minute + time.Duration(second)*time.Second))
		for range 5 {
			if err := get(t.Context(), client); err != nil {
				t.Fatal(err)
			}
		}
	}
	cluster.Eventually(t, func(context.Context) error {
		if server.minted() < 2 {
			return errors.New("the token was not asked for again")
		}
		return nil
	})
	if got := server.minted(); got > 7 {
		t.Errorf("%d tokens requested, want the first and six attempts in a minute at most", got)
	}
}

// A server that issues tokens which are, or seem, about to expire gets few requests for them (T-10).
func TestShortLivedTokensCauseNoStorm(t *testing.T) {
	for name, life := range map[string]time.Duration{
		"expired an hour ago":     -time.Hour,
		"expires in five seconds": 5 * time.Second,
		"no life at all":          0,
	} {
		t.Run(name, func(t *testing.T) {
			server := newFaulty(t)
			server.life = life
			clock := clocktesting.NewFakePassiveClock(start)
			client := clientFor(t, newClients(t, tenant.Options{Config: server.config(), Clock: clock}), deployer)
			for second := range 21 {
				clock.SetTime(start.Add(time.Duration(second) * time.Second))
				for range 5 {
					if err := get(t.Context(), client); err != nil {
						t.Fatal(err)
					}
				}
			}
			if got := server.minted(); got != 3 {
				t.Errorf("%d tokens requested in 20 seconds, want 3", got)
			}
		})
	}
}

// A 401 is followed by another token and the same request, body and all (T-08).
func TestRejectedTokenIsReplacedAndTheRequestReplayed(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "app", "namespace": "payments"},
	}}
	for name, send := range map[string]func(context.Context, *tenant.Client) error{
		"get": get,
		"apply": func(ctx context.Context, c *tenant.Client) error {
			_, err := c.Apply(ctx, object, tenant.ApplyOptions{FieldManager: "stageset"})
			return err
		},
		"delete": func(ctx context.Context, c *tenant.Client) error {
			_, err := c.Delete(ctx, configMap, "payments", "app", tenant.DeleteOptions{UID: "1", ResourceVersion: "1"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := newFaulty(t)
			server.serve = func(w http.ResponseWriter, _ *http.Request, token string) {
				if token == "1" {
					status(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
					return
				}
				answer(w, http.StatusOK, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"app"}}`)
			}
			client := clientFor(t, newClients(t, tenant.Options{Config: server.config()}), deployer)
			if err := send(t.Context(), client); err != nil {
				t.Fatal(err)
			}
			seen := server.seen()
			if len(seen) != 2 || seen[0].Token != "1" || seen[1].Token != "2" {
				t.Fatalf("the server saw %v, want one request with each token", seen)
			}
			seen[1].Token = seen[0].Token
			if diff := cmp.Diff(seen[0], seen[1]); diff != "" {
				t.Errorf("the replayed request differs (-first +second):\n%s", diff)
			}
			if name != "get" && seen[0].Body == "" {
				t.Error("the request had no body, so its replay shows nothing")
			}
		})
	}
}

// A token that was rejected is forgotten, so that the next pass is told at its beginning that the account is gone.
func TestRejectedTokenIsForgotten(t *testing.T) {
	server := newFaulty(t)
	server.mint = func(w http.ResponseWriter, r *http.Request, n int) {
		if n > 1 {
			status(w, http.StatusNotFound, "NotFound", "no such account")
			return
		}
		server.token(w, r, n)
	}
	server.serve = func(w http.ResponseWriter, _ *http.Request, _ string) {
		status(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
	}
	clients := newClients(t, tenant.Options{Config: server.config()})
	want := &failure.Error{Reason: v1.ReasonServiceAccountNotFound, Kind: failure.Stalled}
	const message = "service account payments/deployer does not exist: create it, or correct serviceAccountName"
	checkFailure(t, get(t.Context(), clientFor(t, clients, deployer)), want, message)
	_, err := clients.Target(t.Context(), tenant.Destination{}, deployer)
	checkFailure(t, err, want, message)
}

// Many requests that get a 401 for the same token cause one request for another.
func TestRejectedTokenIsReplacedOnceForAll(t *testing.T) {
	server := newFaulty(t)
	const requests = 20
	var late sync.WaitGroup
	late.Add(requests)
	server.serve = func(w http.ResponseWriter, _ *http.Request, token string) {
		if token == "1" {
			// All have been sent with the old token before the first is refused.
			late.Done()
			late.Wait()
			status(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
			return
		}
		answer(w, http.StatusOK, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"app"}}`)
	}
	// One namespace has a quarter of what may be at the server at once.
	clients := newClients(t, tenant.Options{Config: server.config(), InFlight: 4 * requests})
	client := clientFor(t, clients, deployer)
	var group sync.WaitGroup
	for range requests {
		group.Go(func() {
			if err := get(t.Context(), client); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := server.minted(); got != 2 {
		t.Errorf("%d tokens requested, want 2", got)
	}
}

// A second 401 is an error; a server that accepts none of its tokens is not asked for ever more of them.
func TestTokensThatAreNeverAcceptedCauseNoStorm(t *testing.T) {
	server := newFaulty(t)
	server.serve = func(w http.ResponseWriter, _ *http.Request, _ string) {
		status(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
	}
	clock := clocktesting.NewFakePassiveClock(start)
	client := clientFor(t, newClients(t, tenant.Options{Config: server.config(), Clock: clock}), deployer)
	for second := range 21 {
		clock.SetTime(start.Add(time.Duration(second) * time.Second))
		for range 5 {
			if err := get(t.Context(), client); !apierrors.IsUnauthorized(err) {
				t.Fatalf("got %v, want Unauthorized", err)
			}
		}
	}
	if got := server.minted(); got != 4 {
		t.Errorf("%d tokens requested in 20 seconds, want 4", got)
	}
}

// One request serves all who wait, and does not end when the one that caused it leaves.
func TestTokenIsMintedOnceForManyWaiters(t *testing.T) {
	server := newFaulty(t)
	asked, release := make(chan struct{}, 100), make(chan struct{})
	server.mint = func(w http.ResponseWriter, r *http.Request, n int) {
		asked <- struct{}{}
		select {
		case <-release:
			server.token(w, r, n)
		case <-r.Context().Done():
			t.Error("the token request was given up")
		}
	}
	clients := newClients(t, tenant.Options{Config: server.config()})

	impatient, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := clients.Target(impatient, tenant.Destination{}, deployer)
		left <- err
	}()
	<-asked
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the one who left got %v, want context.Canceled", err)
	}
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if _, err := clients.Target(t.Context(), tenant.Destination{}, deployer); err != nil {
				t.Error(err)
			}
		})
	}
	close(release)
	group.Wait()
	if got := server.minted(); got != 1 {
		t.Errorf("%d tokens requested, want 1", got)
	}
}

// An account whose token does not come holds up nobody else, and is told so in time.
func TestHungTokenRequest(t *testing.T) {
	server := newFaulty(t)
	server.mint = func(w http.ResponseWriter, r *http.Request, n int) {
		if r.URL.Path == "/api/v1/namespaces/payments/serviceaccounts/hung/token" {
			<-r.Context().Done()
			return
		}
		server.token(w, r, n)
	}
	clients := newClients(t, tenant.Options{Config: server.config(), RequestTimeout: 200 * time.Millisecond})
	waited := make(chan error)
	go func() {
		_, err := clients.Target(t.Context(), tenant.Destination{}, tenant.Account{Namespace: "payments", Name: "hung"})
		waited <- err
	}()
	clientFor(t, clients, deployer)
	want := &failure.Error{Reason: v1.ReasonTargetUnreachable, Kind: failure.Transient}
	checkFailure(t, <-waited, want,
		"request a token of service account payments/hung: the API server did not answer in time")
}

// The least recently used accounts are forgotten.
func TestTokensAreBounded(t *testing.T) {
	server := newFaulty(t)
	clients := newClients(t, tenant.Options{Config: server.config(), Accounts: 2})
	for _, step := range []struct {
		account string
		minted  int
	}{{"a", 1}, {"b", 2}, {"a", 2}, {"c", 3}, {"a", 3}, {"c", 3}, {"b", 4}} {
		clientFor(t, clients, tenant.Account{Namespace: "payments", Name: step.account})
		if got := server.minted(); got != step.minted {
			t.Fatalf("%d tokens requested after %q, want %d", got, step.account, step.minted)
		}
	}
}

// Whatever the token request is answered with, the message says whose fault it is.
func TestTokenRequestFailures(t *testing.T) {
	for name, test := range map[string]struct {
		account tenant.Account
		mint    func(w http.ResponseWriter, r *http.Request, n int)
		want    failure.Error
		message string
	}{
		"no name": {
			account: tenant.Account{Namespace: "payments"},
			want:    failure.Error{Reason: v1.ReasonServiceAccountRequired, Kind: failure.Stalled},
			message: "no ServiceAccount in namespace payments is named, and --allow-controller-identity does not allow the " +
				"reconciler's own there",
		},
		"a name that leads elsewhere": {
			account: tenant.Account{Namespace: "payments", Name: "../../kube-system/serviceaccounts/admin"},
			want:    failure.Error{Reason: v1.ReasonInvalidSpec, Kind: failure.Stalled},
			message: `service account "payments/../../kube-system/serviceaccounts/admin": its name ` +
				`"../../kube-system/serviceaccounts/admin" is not valid: it may not contain '/'`,
		},
		"a path that does not exist is no missing account": {
			account: deployer,
			mint: func(w http.ResponseWriter, _ *http.Request, _ int) {
				http.Error(w, "404 page not found", http.StatusNotFound)
			},
			want:    failure.Error{Reason: v1.ReasonTargetUnreachable, Kind: failure.Transient},
			message: "request a token of service account payments/deployer: the server answered 404 Not Found without saying why",
		},
		"a proxy's page": {
			account: deployer,
			mint: func(w http.ResponseWriter, _ *http.Request, _ int) {
				http.Error(w, "<html>session=s3cr3t", http.StatusBadGateway)
			},
			want: failure.Error{Reason: v1.ReasonTargetUnreachable, Kind: failure.Transient},
			message: "request a token of service account payments/deployer: " +
				"the server answered 502 Bad Gateway without saying why",
		},
		"a policy of the cluster": {
			account: deployer,
			mint: func(w http.ResponseWriter, _ *http.Request, _ int) {
				status(w, http.StatusUnprocessableEntity, "Invalid", "policy says no")
			},
			want: failure.Error{Reason: v1.ReasonPermissionsMissing, Kind: failure.Stalled},
			message: "the API server does not give the reconciler a token of service account payments/deployer: " +
				"policy says no",
		},
		"the token of another account": {
			account: deployer,
			mint: func(w http.ResponseWriter, r *http.Request, n int) {
				r.URL.Path = "/api/v1/namespaces/payments/serviceaccounts/other/token"
				(&faulty{t: t}).token(w, r, n)
			},
			want: failure.Error{Reason: v1.ReasonTargetUnreachable, Kind: failure.Transient},
			message: "the API server was asked for a token of service account payments/deployer and answered with " +
				"something else",
		},
		"no token": {
			account: deployer,
			mint: func(w http.ResponseWriter, _ *http.Request, _ int) {
				answer(w, http.StatusCreated,
					`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","status":{"token":"s3cr3t"}}`)
			},
			want: failure.Error{Reason: v1.ReasonTargetUnreachable, Kind: failure.Transient},
			message: "the API server was asked for a token of service account payments/deployer and answered with " +
				"something else",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := newFaulty(t)
			server.mint = test.mint
			_, err := newClients(t, tenant.Options{Config: server.config()}).Target(t.Context(), tenant.Destination{}, test.account)
			checkFailure(t, err, &test.want, test.message)
		})
	}
}

func checkFailure(t testing.TB, err error, want *failure.Error, message string) {
	t.Helper()
	var got *failure.Error
	if !errors.As(err, &got) {
		t.Fatalf("got %v, want a *failure.Error", err)
	}
	described := func(reason string, kind failure.Kind, text string) string {
		return fmt.Sprintf("%s %s: %s", reason, kind, text)
	}
	if diff := cmp.Diff(described(want.Reason, want.Kind, message), described(got.Reason, got.Kind, got.Error())); diff != "" {
		t.Errorf("failure (-want +got):\n%s", diff)
	}
}

package tenant_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/tenant"
)

func TestExplainNil(t *testing.T) {
	if err := tenant.Explain(nil, "read", tenant.Reasons{}); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

// Each answer leads to a reason, a kind and a text; a body that is no Status never shows.
func TestAnswersAreExplained(t *testing.T) {
	reasons := tenant.Reasons{
		Forbidden: v1.ReasonAccessDenied, NotFound: v1.ReasonSourceNotFound, Refused: v1.ReasonPruneFailed,
	}
	stalled := func(reason string) failure.Error { return failure.Error{Reason: reason, Kind: failure.Stalled} }
	transient := func(reason string) failure.Error { return failure.Error{Reason: reason, Kind: failure.Transient} }
	for name, test := range map[string]struct {
		code         int
		body         string // of a Status with this reason and the message "why" if it has no brace
		want         failure.Error
		wantSentence string
	}{
		"forbidden":    {403, "Forbidden", stalled(v1.ReasonAccessDenied), "why"},
		"not found":    {404, "NotFound", stalled(v1.ReasonSourceNotFound), "why"},
		"invalid":      {422, "Invalid", stalled(v1.ReasonPruneFailed), "why"},
		"bad request":  {400, "BadRequest", stalled(v1.ReasonPruneFailed), "why"},
		"conflict":     {409, "Conflict", transient(v1.ReasonPruneFailed), "why"},
		"expired":      {410, "Expired", transient(v1.ReasonPruneFailed), "why"},
		"server error": {500, "InternalError", transient(v1.ReasonPruneFailed), "why"},
		"busy":         {429, "TooManyRequests", transient(v1.ReasonTargetUnreachable), "why"},
		"away":         {503, "ServiceUnavailable", transient(v1.ReasonTargetUnreachable), "why"},
		"too slow":     {504, "Timeout", transient(v1.ReasonTargetUnreachable), "why"},
		"refused twice": {401, "Unauthorized", transient(v1.ReasonTargetUnreachable),
			"the API server does not accept the credentials: why"},
		"a path that is not served": {404, "{", stalled(v1.ReasonSourceNotFound),
			`the cluster does not serve it: no matches for kind "ConfigMap" in version "v1": ` +
				"correct apiVersion and kind, or install what defines it"},
		"a page": {502, "<b>{s3cr3t}", transient(v1.ReasonTargetUnreachable),
			"the server answered 502 Bad Gateway without saying why"},
		"a page that forbids": {403, "<b>{s3cr3t}", transient(v1.ReasonTargetUnreachable),
			"the server answered 403 Forbidden without saying why"},
		"a page instead of an object": {200, "<b>{s3cr3t}", transient(v1.ReasonTargetUnreachable),
			"the answer of the API server cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			server := newFaulty(t)
			server.serve = func(w http.ResponseWriter, _ *http.Request, _ string) {
				if strings.Contains(test.body, "{") {
					w.WriteHeader(test.code)
					_, _ = w.Write([]byte(test.body))
					return
				}
				w.Header().Set("Retry-After", "3600") // waiting for it would hold a worker
				status(w, test.code, test.body, "why")
			}
			client := clientFor(t, newClients(t, tenant.Options{Config: server.config()}), deployer)
			err := tenant.Explain(get(t.Context(), client), "read ConfigMap payments/app", reasons)
			checkFailure(t, err, &test.want, "read ConfigMap payments/app: "+test.wantSentence)
		})
	}
}

func TestReasonsHaveDefaults(t *testing.T) {
	for name, test := range map[string]struct {
		code   int
		reason string
		want   string
	}{
		"forbidden": {403, "Forbidden", v1.ReasonPermissionsMissing},
		"not found": {404, "NotFound", v1.ReasonApplyFailed},
		"invalid":   {422, "Invalid", v1.ReasonApplyFailed},
	} {
		t.Run(name, func(t *testing.T) {
			server := newFaulty(t)
			server.serve = func(w http.ResponseWriter, _ *http.Request, _ string) { status(w, test.code, test.reason, "why") }
			client := clientFor(t, newClients(t, tenant.Options{Config: server.config()}), deployer)
			err := tenant.Explain(get(t.Context(), client), "read", tenant.Reasons{})
			checkFailure(t, err, &failure.Error{Reason: test.want, Kind: failure.Stalled}, "read: why")
		})
	}
}

// An API server that cannot be reached is told by what somebody can mend, in words that are the same at the next attempt.
func TestUnreachableServersAreExplained(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	hangup := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer hangup.Close()

	for name, test := range map[string]struct {
		config  *rest.Config
		message string
	}{
		"nobody listens": {&rest.Config{Host: "https://" + closed}, "dial " + closed + ": connect: connection refused"},
		"unknown authority": {&rest.Config{Host: newFaulty(t).URL},
			"the certificate of the API server is not trusted: x509: certificate signed by unknown authority"},
		"a broken connection": {&rest.Config{Host: hangup.URL}, "the connection to the API server broke before the answer came"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newClients(t, tenant.Options{Config: test.config}).Target(t.Context(), tenant.Destination{}, deployer)
			checkFailure(t, err, &failure.Error{Reason: v1.ReasonTargetUnreachable, Kind: failure.Transient},
				"request a token of service account payments/deployer: "+test.message)
		})
	}
}

// A message has a limit, and is cut between characters.
func TestLongMessagesAreCut(t *testing.T) {
	server := newFaulty(t)
	server.serve = func(w http.ResponseWriter, _ *http.Request, _ string) {
		status(w, http.StatusForbidden, "Forbidden", "x"+strings.Repeat("ä", 8<<10))
	}
	client := clientFor(t, newClients(t, tenant.Options{Config: server.config()}), deployer)
	err := get(t.Context(), client)
	if !apierrors.IsForbidden(err) {
		t.Fatalf("got %v, want Forbidden", err)
	}
	if want := "x" + strings.Repeat("ä", 4<<10-1) + " …"; err.Error() != want {
		t.Errorf("the message has %d bytes, want %d", len(err.Error()), len(want))
	}
}

// What a server says about the content of a Secret may quote it.
func TestErrorsAboutSecretsAreWithheld(t *testing.T) {
	for name, test := range map[string]struct {
		kind, reason string
		code         int
		withheld     bool
	}{
		"a Secret it cannot read":       {"Secret", "BadRequest", 400, true},
		"a Secret it stumbles over":     {"Secret", "InternalError", 500, true},
		"a Secret that is forbidden":    {"Secret", "Forbidden", 403, false},
		"a Secret that is invalid":      {"Secret", "Invalid", 422, false},
		"a ConfigMap it cannot read":    {"ConfigMap", "BadRequest", 400, false},
		"a Secret with a field manager": {"Secret", "Conflict", 409, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := newFaulty(t)
			server.serve = func(w http.ResponseWriter, _ *http.Request, _ string) {
				status(w, test.code, test.reason, "got s3cr3t")
			}
			client := clientFor(t, newClients(t, tenant.Options{Config: server.config()}), deployer)
			object := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": test.kind, "metadata": map[string]any{"name": "app", "namespace": "payments"},
			}}
			_, err := client.Apply(t.Context(), object, tenant.ApplyOptions{FieldManager: "stageset"})
			var status apierrors.APIStatus
			if !errors.As(err, &status) || int(status.Status().Code) != test.code {
				t.Fatalf("got %v, want the server's status", err)
			}
			if got := !strings.Contains(err.Error(), "s3cr3t"); got != test.withheld {
				t.Errorf("the message is %q; withheld %t, want %t", err, got, test.withheld)
			}
		})
	}
}

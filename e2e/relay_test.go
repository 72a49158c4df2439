package e2e

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/stageset/stageset/e2e/process"
)

// moment is a place in the work of a reconciler: one of its requests.
type moment struct {
	// write is the verb of RBAC and what it is about: "patch configmaps", "delete stageinventories", "patch stagesets/status",
	// "list secrets". "patch *" and "delete *" are any object that is not the product's own. A dry-run is no moment.
	write string
	// nth counts such writes from one; zero is the first.
	nth int
	// holding, if set, is text that the body of the request has.
	holding string
	// stored is true if the API server does the write and only the answer is lost, false if the write is never made.
	stored bool
	// meanwhile, if set, is what somebody else does right before it.
	meanwhile func()
}

// String is "patch configmaps 2 is stored".
func (m moment) String() string {
	text := fmt.Sprintf("%s %d", m.write, max(m.nth, 1))
	if m.holding != "" {
		text += " with " + m.holding
	}
	if m.stored {
		return text + " is stored"
	}
	return text + " is not made"
}

// relay is a way to the API server that changes nothing, until it is told to end who uses it at a moment, or to answer in the
// API server's place.
type relay struct {
	server *httptest.Server
	next   http.RoundTripper

	mu    sync.Mutex
	armed *trap
}

// trap waits for a moment in a namespace, and then kills, or answers with an error.
type trap struct {
	moment
	namespace string
	seen      int
	victim    *process.Process
	sprung    chan struct{}
	answer    *apierrors.StatusError
	left      int // how many answers are left
	// resume, if set, is what the request waits for before it is passed on.
	resume <-chan struct{}
}

// relay is a relay to the cluster until the end of the test.
func (s *suite) relay(t testing.TB) *relay {
	t.Helper()
	target, err := url.Parse(s.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	next, err := rest.TransportFor(rest.AnonymousClientConfig(s.Config))
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{next: next}
	r.server = httptest.NewTLSServer(&httputil.ReverseProxy{
		Rewrite:       func(request *httputil.ProxyRequest) { request.SetURL(target) },
		Transport:     r,
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
	})
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(func() {
		r.server.CloseClientConnections()
		r.server.Close()
	})
	return r
}

// config leads to the cluster through the relay.
func (r *relay) config(direct *rest.Config) *rest.Config {
	config := rest.CopyConfig(direct)
	config.Host, config.CAFile = r.server.URL, ""
	config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw})
	return config
}

// kill kills the process at the moment in the namespace; the channel is closed when it is dead.
func (r *relay) kill(victim *process.Process, namespace string, at moment) <-chan struct{} {
	at.nth = max(at.nth, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed = &trap{moment: at, namespace: namespace, victim: victim, sprung: make(chan struct{})}
	return r.armed.sprung
}

// refuse answers that many requests of the moment in the namespace with an error; the channel is closed after the last.
func (r *relay) refuse(namespace string, at moment, answer *apierrors.StatusError, times int) <-chan struct{} {
	at.nth = max(at.nth, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed = &trap{moment: at, namespace: namespace, answer: answer, left: times, sprung: make(chan struct{})}
	return r.armed.sprung
}

// pause holds the request of the moment in the namespace until resume is closed; the channel is closed when it is held.
func (r *relay) pause(namespace string, at moment, resume <-chan struct{}) <-chan struct{} {
	at.nth = max(at.nth, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed = &trap{moment: at, namespace: namespace, resume: resume, sprung: make(chan struct{})}
	return r.armed.sprung
}

var errKilled = errors.New("the process that asked was killed")

// RoundTrip passes a request on, unless it is the moment.
func (r *relay) RoundTrip(request *http.Request) (*http.Response, error) {
	sprung, err := r.springs(request)
	if err != nil || sprung == nil {
		return pass(r.next, request, err)
	}
	if sprung.meanwhile != nil {
		sprung.meanwhile()
	}
	if sprung.resume != nil {
		close(sprung.sprung)
		<-sprung.resume
		return r.next.RoundTrip(request)
	}
	if sprung.stored {
		response, err := r.next.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		response.Body.Close()
	}
	if sprung.answer != nil {
		return sprung.answered(request)
	}
	sprung.victim.Kill()
	close(sprung.sprung)
	return nil, errKilled
}

// answered is the answer of a trap, as the API server would give it.
func (t *trap) answered(request *http.Request) (*http.Response, error) {
	status := t.answer.Status()
	status.APIVersion, status.Kind = "v1", "Status"
	body, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: int(status.Code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
	}, nil
}

func pass(next http.RoundTripper, request *http.Request, err error) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	return next.RoundTrip(request)
}

// springs is the trap that the request springs, nil if it springs none.
func (r *relay) springs(request *http.Request) (*trap, error) {
	namespace, write := describe(request)
	r.mu.Lock()
	defer r.mu.Unlock()
	trap := r.armed
	if trap == nil || namespace != trap.namespace || !trap.isOf(write) {
		return nil, nil
	}
	var body []byte
	if request.Body != nil {
		var err error
		if body, err = io.ReadAll(request.Body); err != nil {
			return nil, err
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
	}
	if !bytes.Contains(body, []byte(trap.holding)) {
		return nil, nil
	}
	if trap.seen++; trap.seen < trap.nth {
		return nil, nil
	}
	if trap.left--; trap.left <= 0 {
		r.armed = nil
		if trap.answer != nil {
			close(trap.sprung)
		}
	}
	return trap, nil
}

// isOf says whether the moment is about such a write.
func (m moment) isOf(write string) bool {
	verb, any := strings.CutSuffix(m.write, " *")
	if !any {
		return write == m.write
	}
	resource, ofVerb := strings.CutPrefix(write, verb+" ")
	return ofVerb && !strings.HasPrefix(resource, "stage")
}

// describe says in which namespace a request does what; it is empty for a dry-run and for a watch.
func describe(request *http.Request) (namespace, write string) {
	verbs := map[string]string{"GET": "list", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
	_, path, found := strings.Cut(request.URL.Path, "/namespaces/")
	parts := strings.Split(path, "/")
	query := request.URL.Query()
	if verbs[request.Method] == "" || query.Has("dryRun") || query.Has("watch") || !found || len(parts) < 2 {
		return "", ""
	}
	resource, verb := parts[1], verbs[request.Method]
	if verb == "list" && len(parts) > 2 {
		verb = "get"
	}
	if len(parts) > 3 {
		resource += "/" + parts[3]
	}
	return parts[0], verb + " " + resource
}

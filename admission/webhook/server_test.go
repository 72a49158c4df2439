package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/stageset/stageset/policies"
)

// judge are policies that only validate, as a test likes.
type judge func(ctx context.Context) policies.Decision

func (j judge) ValidateDefaulted(ctx context.Context, _ policies.Input) policies.Decision {
	return j(ctx)
}

func (judge) Defaults() bool { return true }

func (j judge) Default(_ context.Context, in policies.Input) (*unstructured.Unstructured, error) {
	return in.Object, nil
}

// listen serves the webhooks by plain HTTP.
func listen(t *testing.T, s *Server) string {
	t.Helper()
	if s.Draining == nil {
		s.Draining = func() bool { return false }
	}
	server := ctrlwebhook.NewServer(ctrlwebhook.Options{})
	s.Register(server)
	listener := httptest.NewServer(server.WebhookMux())
	t.Cleanup(listener.Close)
	return listener.URL
}

func judged(t *testing.T, j judge) *StageSets {
	t.Helper()
	s := newStageSets(t)
	s.Policies = func() Policies { return j }
	return s
}

func body(t testing.TB, request admission.Request) io.Reader {
	t.Helper()
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request:  &request.AdmissionRequest,
	}
	content, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(content)
}

func post(t *testing.T, url string, content io.Reader) (*http.Response, *admissionv1.AdmissionResponse) {
	t.Helper()
	response, err := http.Post(url, "application/json", content)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(response.Body).Decode(&review); err != nil {
		t.Fatal(err)
	}
	return response, review.Response
}

func TestServerRefusesWhatItCannotAnswer(t *testing.T) {
	allowed := func(context.Context) policies.Decision { return policies.Decision{} }
	for name, test := range map[string]struct {
		judge judge
		body  func(t *testing.T) io.Reader
		want  int32 // code of the Status
	}{
		"allowed": {judge: allowed, want: http.StatusOK},
		"panic":   {judge: func(context.Context) policies.Decision { panic("broken") }, want: http.StatusInternalServerError},
		"8 MiB": {judge: allowed, want: http.StatusRequestEntityTooLarge,
			body: func(*testing.T) io.Reader { return strings.NewReader(strings.Repeat(" ", 8<<20)) }},
		"no review": {judge: allowed, want: http.StatusBadRequest,
			body: func(*testing.T) io.Reader { return strings.NewReader("hello") }},
	} {
		t.Run(name, func(t *testing.T) {
			content := body(t, newRequest(t, "open", nil, stageSet(t, "spec: {interval: 1h}")))
			if test.body != nil {
				content = test.body(t)
			}
			_, got := post(t, listen(t, &Server{StageSets: judged(t, test.judge), MaxInFlight: 1})+PathValidate, content)
			if got.Result.Code != test.want || got.Allowed != (test.want == http.StatusOK) {
				t.Errorf("allowed is %t, code %d, want %d: %s", got.Allowed, got.Result.Code, test.want, got.Result.Message)
			}
		})
	}
}

// P-29: what is too much is refused at once and told to come back, and what is being answered is answered.
func TestServerShedsLoad(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	slow := func(context.Context) policies.Decision {
		entered <- struct{}{}
		<-leave
		return policies.Decision{}
	}
	url := listen(t, &Server{StageSets: judged(t, slow), MaxInFlight: 1})
	request := newRequest(t, "open", nil, stageSet(t, "spec: {interval: 1h}"))
	first := make(chan *admissionv1.AdmissionResponse, 1)
	go func() {
		_, response := post(t, url+PathValidate, body(t, request))
		first <- response
	}()
	<-entered
	for _, path := range []string{PathDefault, PathValidate} {
		_, got := post(t, url+path, body(t, request))
		want := overloaded().AdmissionResponse
		want.UID = request.UID // without it the API server takes the answer for a broken one
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	close(leave)
	if got := <-first; !got.Allowed {
		t.Errorf("the first request: %+v", got.Result)
	}
	go func() { <-entered }()
	if _, got := post(t, url+PathValidate, body(t, request)); !got.Allowed {
		t.Errorf("after the first request: %+v", got.Result)
	}
}

// The deadline is half of what the API server grants, and neither it nor the evaluation ends with the connection: P-32, a
// server that stops still answers what it is asked.
func TestServerGivesHalfOfTheTimeout(t *testing.T) {
	for name, test := range map[string]struct {
		query string
		want  time.Duration
	}{
		"as the API server says": {"?timeout=10s", 5 * time.Second},
		"unsaid":                 {"", 2500 * time.Millisecond},
		"nonsense":               {"?timeout=soon", 2500 * time.Millisecond},
		"negative":               {"?timeout=-1s", 2500 * time.Millisecond},
		"longer than is allowed": {"?timeout=1h", 2500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Server{Draining: func() bool { return false }}
			gone, leave := context.WithCancel(t.Context())
			leave()
			request := httptest.NewRequestWithContext(gone, http.MethodPost, PathValidate+test.query, nil)
			begin := time.Now()
			s.bound(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				deadline, _ := r.Context().Deadline()
				if got := deadline.Sub(begin); got < test.want || got > test.want+time.Second {
					t.Errorf("deadline after %s, want %s", got, test.want)
				}
				if err := r.Context().Err(); err != nil {
					t.Errorf("the context has ended with the connection: %v", err)
				}
			})).ServeHTTP(httptest.NewRecorder(), request)
		})
	}
}

// A client that never finishes its request does not hold a connection for longer than the deadline.
func TestServerEndsASlowRequest(t *testing.T) {
	url := listen(t, &Server{StageSets: newStageSets(t), MaxInFlight: 1})
	connection, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := connection.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	head := "POST " + PathValidate + "?timeout=100ms HTTP/1.1\r\nHost: a\r\n" +
		"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
	if _, err := io.WriteString(connection, head); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(connection)
	if err != nil || !strings.Contains(string(answer), "timeout") {
		t.Errorf("got %q, %v; want an answer that says timeout, and the end of the connection", answer, err)
	}
}

// P-32
func TestServerClosesConnectionsWhileItDrains(t *testing.T) {
	for name, draining := range map[string]bool{"before": false, "while": true} {
		t.Run(name, func(t *testing.T) {
			url := listen(t, &Server{StageSets: newStageSets(t), MaxInFlight: 1, Draining: func() bool { return draining }})
			response, _ := post(t, url+PathValidate, body(t, newRequest(t, "open", nil, stageSet(t, "spec: {interval: 1h}"))))
			if response.Close != draining {
				t.Errorf("the connection is closed: %t, want %t", response.Close, draining)
			}
		})
	}
}

// A handler that panics has given no verdict.
func TestPanicsAreMeasured(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	metrics, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	measured := metrics.measure(PathDefault, admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
		panic("broken")
	}))
	func() {
		defer func() { _ = recover() }()
		measured.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: "UPDATE"}})
	}()
	if got := samples(t, registry)[PathDefault+" UPDATE error"]; got != 1 {
		t.Errorf("measured %d times", got)
	}
}

// samples counts what was measured, by webhook, operation and verdict.
func samples(t *testing.T, registry prometheus.Gatherer) map[string]uint64 {
	t.Helper()
	got, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, metric := range got[0].GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		series := labels["webhook"] + " " + labels["operation"] + " " + labels["verdict"]
		counts[series] = metric.GetHistogram().GetSampleCount()
	}
	return counts
}

// P-45: dry runs get the verdict and leave no trace.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	metrics, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	url := listen(t, &Server{
		StageSets: newStageSets(t), StageSetPolicies: &StageSetPolicies{}, MaxInFlight: 1, Metrics: metrics,
	})
	fine, other := stageSet(t, "spec: {interval: 1h}"), stageSet(t, "{spec: {interval: 1h}, metadata: {labels: {team: other}}}")
	for range 2 {
		post(t, url+PathValidate, body(t, newRequest(t, "open", nil, fine)))
	}
	post(t, url+PathValidate, body(t, newRequest(t, "open", nil, other)))
	dry := newRequest(t, "open", nil, other)
	dry.DryRun = ptr.To(true)
	if _, got := post(t, url+PathValidate, body(t, dry)); got.Allowed {
		t.Error("the dry run was allowed")
	}
	broken := newRequest(t, "open", nil, fine)
	broken.Object.Raw = []byte(`{}`)
	post(t, url+PathValidate, body(t, broken))
	post(t, url+PathDefault, body(t, newRequest(t, "open", nil, fine)))
	unreadable := newRequest(t, "open", nil, fine)
	unreadable.Object.Raw = []byte(`{"spec": 1}`)
	post(t, url+PathValidatePolicies, body(t, unreadable))
	want := map[string]uint64{}
	for _, asked := range []string{
		PathDefault + " CREATE", PathDefault + " UPDATE",
		PathValidate + " CREATE", PathValidate + " UPDATE", PathValidate + " DELETE",
		PathValidatePolicies + " CREATE", PathValidatePolicies + " UPDATE",
	} {
		for _, verdict := range []string{verdictAllowed, verdictDenied, verdictShed, verdictError} {
			want[asked+" "+verdict] = 0 // an alert sees the first only where there was none before
		}
	}
	maps.Copy(want, map[string]uint64{
		PathValidate + " CREATE allowed": 2, PathValidate + " CREATE denied": 1, PathValidate + " CREATE error": 1,
		PathDefault + " CREATE allowed": 1, PathValidatePolicies + " CREATE error": 1,
	})
	if diff := cmp.Diff(want, samples(t, registry)); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
}

package admission_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/collector"
)

// A request to a webhook is a span, in the trace that the API server is told of, with a span of what the policies do; the log
// says which trace it is.
func TestTracesOfAdmissions(t *testing.T) {
	i := install(t)
	i.installWebhooks(t)
	spans := collector.Start(t)
	i.env = append(i.env, spans.Environment()...)
	r := i.start(t, "--tracing", "--policy-config="+i.policyConfig(t, "defaultServiceAccount: from-config"))

	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	caller := i.traced(t, "00-"+trace+"-"+span+"-01")
	if err := caller.Create(t.Context(), i.stageSet(t, "good", validSpec)); err != nil {
		t.Fatal(err)
	}
	about := func(name, verdict string) string {
		return fmt.Sprintf(" name=%s namespace=%s operation=CREATE verdict=%s\n", name, i.tenant, verdict)
	}
	i.awaitTraces(t, spans, span, "/stagesets/default"+about("good", "allowed")+"  default\n",
		"/stagesets/validate"+about("good", "allowed")+"  evaluate\n")
	if !strings.Contains(r.Output(), "trace_id="+trace) {
		t.Errorf("the log does not say trace_id=%s", trace)
	}

	// Without a caller's trace each request is one by itself.
	if err := i.client.Create(t.Context(), i.stageSet(t, "bad", invalidSpec)); err == nil {
		t.Fatal("it is admitted")
	}
	i.awaitTraces(t, spans, "", "/stagesets/validate"+about("bad", "denied")+"  evaluate\n")

	policy := i.policy(t, "any", "validations: [{name: any, expression: 'true', message: never}]")
	i.awaitTraces(t, spans, "", "/stagesetpolicies/validate name="+policy.GetName()+
		" namespace= operation=CREATE verdict=allowed\n  check\n")
}

// traced is a client whose requests are in a trace.
func (i *installation) traced(t *testing.T, parent string) client.Client {
	t.Helper()
	config := rest.CopyConfig(i.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return traced{next, parent} })
	caller, err := client.New(config, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	return caller
}

type traced struct {
	next   http.RoundTripper
	parent string
}

// RoundTrip is of http.RoundTripper.
func (r traced) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("traceparent", r.parent)
	return r.next.RoundTrip(request)
}

// awaitTraces waits until there are spans like these below the parent, or without one.
func (i *installation) awaitTraces(t *testing.T, from *collector.Collector, parent string, wanted ...string) {
	t.Helper()
	cluster.Eventually(t, func(context.Context) error {
		all := from.Spans()
		found := map[string]bool{}
		for _, span := range all {
			if span.Service == "stageset-admission" && span.Parent == parent {
				found[collector.Tree(span, all)] = true
			}
		}
		var missing []error
		for _, want := range wanted {
			if !found[want] {
				missing = append(missing, fmt.Errorf("there is no %q", want))
			}
		}
		if len(missing) > 0 {
			missing = append(missing, fmt.Errorf("below %q there is %v", parent, found))
		}
		return errors.Join(missing...)
	})
}

package health

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
)

func TestCompileNamesEverythingThatIsWrong(t *testing.T) {
	_, err := Compile([]v1.ReadyExpressions{
		{APIVersion: "example.com/v1", Kind: "Gadget", Current: "statsu.ready", Failed: "status.phase"},
		{APIVersion: "example.com/v1", Kind: "Thing", Current: "true"},
		{APIVersion: "example.com/v1beta1", Kind: "Thing", Current: "true"},
	})
	if err == nil {
		t.Fatal("it compiles")
	}
	want := []string{
		"readyChecks.exprs of example.com/v1 Gadget: current: line 1, column 1: undeclared reference to 'statsu'",
		"readyChecks.exprs of example.com/v1 Gadget: failed: evaluates to dyn, not to bool",
		"readyChecks.exprs of example.com/v1beta1 Thing: the kind has expressions already: the version does not matter",
	}
	if diff := cmp.Diff(strings.Join(want, "; "), err.Error()); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

func TestJudge(t *testing.T) {
	gadget := v1.ReadyExpressions{
		APIVersion: "example.com/v1", Kind: "Gadget",
		InProgress: "status.phase == 'Winding'",
		Failed:     "status.phase in ['Broken', 'Winding']",
		Current:    "status.phase == 'Wound'",
	}
	const head = "apiVersion: example.com/v1beta1\nkind: Gadget\nmetadata: {name: a, generation: 2}\n"
	cases := map[string]struct {
		exprs    v1.ReadyExpressions
		manifest string
		want     Result
	}{
		"current holds": {exprs: gadget, manifest: head + "status: {phase: Wound, observedGeneration: 2}"},
		"failed holds": {exprs: gadget, manifest: head + "status: {phase: Broken}",
			want: Result{Verdict: Failed, Message: "failed of readyChecks.exprs holds"}},
		"what is in progress is asked first": {exprs: gadget, manifest: head + "status: {phase: Winding}",
			want: Result{Verdict: Progressing, Message: "inProgress of readyChecks.exprs holds"}},
		"nothing holds": {exprs: gadget, manifest: head + "status: {phase: Loose}",
			want: Result{Verdict: Progressing, Message: "current of readyChecks.exprs does not hold"}},
		"its status is of an earlier generation": {exprs: gadget,
			manifest: head + "status: {phase: Broken, observedGeneration: 1}",
			want:     Result{Verdict: Progressing, Message: "its controller has not seen the current generation"}},
		"it is being deleted": {exprs: gadget,
			manifest: strings.Replace(head, "name: a", "name: a, deletionTimestamp: '2026-01-01T00:00:00Z'", 1) +
				"status: {phase: Wound}",
			want: deleting},
		"it cannot be evaluated": {exprs: gadget, manifest: head, want: Result{Verdict: Progressing,
			Message: "inProgress of readyChecks.exprs reads status.phase, but phase is not set (guard it with has() or .?)"}},
		// They are the only word: what the kind is known for does not count.
		"a Job that has not completed": {
			exprs:    v1.ReadyExpressions{APIVersion: "batch/v1", Kind: "Job", Current: "status.active > 0"},
			manifest: "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nstatus: {active: 1}",
		},
		"no word about the kind": {
			exprs:    gadget,
			manifest: "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nstatus: {active: 1}",
			want:     Result{Verdict: Progressing, Message: "Job has not completed"},
		},
		"a Secret is not quoted": {
			exprs:    v1.ReadyExpressions{APIVersion: "v1", Kind: "Secret", Current: "int(object.data.token) > 0"},
			manifest: "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {token: Y2FuYXJ5}",
			want: Result{Verdict: Progressing, Message: "current of readyChecks.exprs cannot be evaluated: why is withheld, " +
				"because it may quote a value of the Secret"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			expressions, err := Compile([]v1.ReadyExpressions{tc.exprs})
			if err != nil {
				t.Fatal(err)
			}
			got := NewJudge(expressions).Of(t.Context(), object(t, tc.manifest))
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(Result{})); diff != "" {
				t.Errorf("health (-want +got):\n%s", diff)
			}
		})
	}
}

// Metadata are not enough for a kind that an expression is about.
func TestByExistence(t *testing.T) {
	expressions, err := Compile([]v1.ReadyExpressions{{APIVersion: "v1", Kind: "ConfigMap", Current: "has(object.data)"}})
	if err != nil {
		t.Fatal(err)
	}
	var none *Judge
	cases := map[string]struct {
		judge *Judge
		kind  string
		want  bool
	}{
		"without expressions":      {judge: none, kind: "ConfigMap", want: true},
		"with one of the kind":     {judge: NewJudge(expressions), kind: "ConfigMap"},
		"with one of another kind": {judge: NewJudge(expressions), kind: "Secret", want: true},
		"a kind that has a status": {judge: none, kind: "Service"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.judge.ByExistence(schema.GroupKind{Kind: tc.kind}); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

// A Service is waited for only as long as it asks for something.
func TestNeedsToExist(t *testing.T) {
	expressions, err := Compile([]v1.ReadyExpressions{{APIVersion: "v1", Kind: "Service", Current: "has(object.status)"}})
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		judge *Judge
		kind  string
		spec  map[string]any
		want  bool
	}{
		"a kind without health":     {kind: "ConfigMap", want: true},
		"a kind that has it":        {kind: "Pod"},
		"a Service":                 {kind: "Service", want: true},
		"a Service inside":          {kind: "Service", spec: map[string]any{"type": "ClusterIP"}, want: true},
		"a load balancer":           {kind: "Service", spec: map[string]any{"type": "LoadBalancer"}},
		"a Service with expression": {judge: NewJudge(expressions), kind: "Service"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": tc.kind, "spec": tc.spec}}
			if got := tc.judge.NeedsToExist(object); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

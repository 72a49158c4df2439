package audit

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

func stageSet(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetNamespace("n")
	object.SetName(name)
	return object
}

func violation(policy, rule string) policies.Violation {
	return policies.Violation{Policy: policy, Rule: rule, Message: "m"}
}

// P-54: a violation counts once, whatever it leads to; a StageSet is an example once, and there are at most twenty, whatever
// there is. P-55: what cannot be evaluated of one policy is no finding of another.
func TestFindings(t *testing.T) {
	found := &findings{observedAt: metav1.Unix(1, 0), policies: map[string]*finding{}}
	for range 25 {
		found.add(stageSet("a"), policies.Decision{
			Denied:  []policies.Violation{violation("p", "r"), violation("p", "s")},
			Audited: []policies.Violation{violation("p", "r")},
			Warned:  []policies.Violation{violation("q", "r")},
			Failed:  []policies.Violation{violation("q", "paramRef")},
		})
	}
	for i := range 30 {
		found.add(stageSet(string(rune('a'+i))), policies.Decision{Warned: []policies.Violation{violation("q", "r")}})
	}
	got := found.status("p")
	if diff := cmp.Diff(&v1alpha1.AuditStatus{
		ObservedAt: metav1.Unix(1, 0), Evaluated: 55, Violations: 50,
		ByAction: map[v1alpha1.ValidationAction]int64{"Deny": 50, "Audit": 25},
		Examples: []v1alpha1.AuditExample{{Namespace: "n", Name: "a", Message: "p/r: m"}},
	}, got); diff != "" {
		t.Errorf("status of p (-want +got):\n%s", diff)
	}
	if got := found.status("q"); got.Violations != 55 || len(got.Examples) != maxExamples {
		t.Errorf("status of q: %d violations, %d examples", got.Violations, len(got.Examples))
	}
	if of := found.policies["q"]; of.failed != "StageSet n/a: q/paramRef: m" || !of.paramRef {
		t.Errorf("failure of q: %q, of its parameters: %t", of.failed, of.paramRef)
	}
	if found.policies["p"].failed != "" {
		t.Errorf("p has failed as well: %s", found.policies["p"].failed)
	}
	if got := found.status("r"); got.Evaluated != 55 || got.Violations != 0 {
		t.Errorf("status of a policy that finds nothing: %+v", got)
	}
}

// pages are StageSets, one a page, whose second page has expired by the time that somebody asks for it.
type pages struct {
	client.Reader
	names   []string
	expired int
}

func (p *pages) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var asked client.ListOptions
	asked.ApplyOptions(options)
	at := len(asked.Continue)
	if at == 1 && p.expired == 0 {
		p.expired++
		err := apierrors.NewResourceExpired("the continue parameter is too old")
		err.ErrStatus.Continue = "a" // which is as good as the one that has expired
		return err
	}
	list.(*unstructured.UnstructuredList).Items = []unstructured.Unstructured{*stageSet(p.names[at])}
	if at+1 < len(p.names) {
		list.SetContinue(strings.Repeat("a", at+1))
	}
	return nil
}

// An audit of so many StageSets that it takes longer than the API server keeps a list comes to its end.
func TestEvaluateReadsOnWhatHasExpired(t *testing.T) {
	set, err := policies.Compile(t.Context(), nil, policies.Options{})
	if err != nil {
		t.Fatal(err)
	}
	live := &pages{names: []string{"a", "b", "c"}}
	a := &Auditor{Live: live, Clock: clocktesting.NewFakeClock(time.Unix(1, 0))}
	found, err := a.evaluate(t.Context(), set, nil)
	if err != nil {
		t.Fatal(err)
	}
	if found.evaluated != 3 || live.expired != 1 {
		t.Errorf("%d StageSets are evaluated, after %d pages that had expired", found.evaluated, live.expired)
	}
}

// A policy that is gone has no series, and one that finds nothing has 0.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	found := &findings{policies: map[string]*finding{"p": {violations: 3}, "q": {violations: 1}}}
	m.set([]policies.Summary{{Name: "p"}, {Name: "q"}}, found)
	m.set([]policies.Summary{{Name: "p"}, {Name: "r"}}, found)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, series := range families[0].GetMetric() {
		got[series.GetLabel()[0].GetValue()] = series.GetGauge().GetValue()
	}
	if diff := cmp.Diff(map[string]float64{"p": 3, "r": 0}, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", families[0].GetName(), diff)
	}
}

// What has not changed is written again after an hour, and not before; a condition keeps its time while it says the same.
func TestNews(t *testing.T) {
	began := time.Unix(1_000_000, 0)
	clock := clocktesting.NewFakeClock(began)
	a := &Auditor{Clock: clock}
	entry := func(status metav1.ConditionStatus, violations int64) v1alpha1.InstallationStatus {
		return v1alpha1.InstallationStatus{
			Name:       "n/r",
			Conditions: []metav1.Condition{{Type: "Ready", Status: status}},
			Audit:      &v1alpha1.AuditStatus{ObservedAt: metav1.NewTime(clock.Now()), Violations: violations},
		}
	}
	before := entry(metav1.ConditionTrue, 1)
	before.Conditions = transition(nil, before.Conditions, metav1.NewTime(began))
	for name, test := range map[string]struct {
		after      time.Duration
		status     metav1.ConditionStatus
		violations int64
		want       bool
	}{
		"the same, soon":       {after: time.Minute, status: metav1.ConditionTrue, violations: 1},
		"the same, later":      {after: time.Hour, status: metav1.ConditionTrue, violations: 1, want: true},
		"other violations":     {after: time.Minute, status: metav1.ConditionTrue, violations: 2, want: true},
		"another condition":    {after: time.Minute, status: metav1.ConditionFalse, violations: 1, want: true},
		"the same, right away": {status: metav1.ConditionTrue, violations: 1},
	} {
		t.Run(name, func(t *testing.T) {
			clock.SetTime(began.Add(test.after))
			now := entry(test.status, test.violations)
			now.Conditions = transition(before.Conditions, now.Conditions, metav1.NewTime(clock.Now()))
			if got := a.news(before, now); got != test.want {
				t.Errorf("news: %t", got)
			}
			unchanged := test.status == metav1.ConditionTrue || test.after == 0
			if since := now.Conditions[0].LastTransitionTime; since.Time.Equal(began) != unchanged {
				t.Errorf("the condition is from %s", since)
			}
		})
	}
}

// Which namespaces a policy is for.
func TestSelects(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	selected := &v1alpha1.MatchConstraints{NamespaceSelector: selector}
	broken := &v1alpha1.MatchConstraints{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"-": "-"}},
	}
	for name, test := range map[string]struct {
		constraints *v1alpha1.MatchConstraints
		labels      map[string]string
		want        bool
	}{
		"everything":          {want: true},
		"excluded":            {constraints: &v1alpha1.MatchConstraints{ExcludeNamespaces: []string{"n"}}},
		"selected":            {constraints: selected, labels: selector.MatchLabels, want: true},
		"not selected":        {constraints: selected},
		"no selector at all":  {constraints: &v1alpha1.MatchConstraints{}, want: true},
		"a broken selector":   {constraints: broken},
		"another is excluded": {constraints: &v1alpha1.MatchConstraints{ExcludeNamespaces: []string{"m"}}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := selects(test.constraints, "n", test.labels); got != test.want {
				t.Errorf("selected: %t", got)
			}
		})
	}
}

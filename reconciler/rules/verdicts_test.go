package rules

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/reconciler/source"
)

// counted counts the evaluations of policies.
type counted struct{ evaluations int }

func (c *counted) Begin(string, v1alpha1.Target) func(uint64) {
	c.evaluations++
	return func(uint64) {}
}
func (*counted) Failed(string, policies.FailureKind) {}
func (*counted) Decided(policies.Outcome)            {}

// versioned is one ConfigMap in one version.
type versioned struct{ version string }

func (v *versioned) Params(_ context.Context, query policies.ParamQuery) ([]*unstructured.Unstructured, error) {
	if v.version == "" {
		return nil, context.DeadlineExceeded
	}
	found := object("v1", "ConfigMap", query.Name)
	found.SetResourceVersion(v.version)
	return []*unstructured.Unstructured{found}, nil
}

// A stage that has not changed since the same policies denied nothing of it is not evaluated again; what they warned of is
// said again. Whatever they see, and whatever they are, makes it another.
func TestVerdictsAreKept(t *testing.T) {
	const text = `
metadata: {name: p}
spec:
  target: Manifest
  validationActions: [%s]
  paramKind: {apiVersion: v1, kind: ConfigMap}
  paramRef: {name: limit}
  validations: [{name: r, expression: "object.kind != 'Secret'", message: no Secrets}]`
	type pass struct {
		set       *policies.Set
		stored    *v1.StageSet
		namespace *corev1.Namespace
		stage     string
		pin       source.Pin
		target    v1alpha1.TargetFacts
		objects   []*unstructured.Unstructured
		params    *versioned
	}
	var seen counted
	params := &versioned{}
	set := func(action string) *policies.Set {
		var policy v1alpha1.StageSetPolicy
		if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(text, "%s", action)), &policy); err != nil {
			t.Fatal(err)
		}
		made, err := policies.Compile(t.Context(), []v1alpha1.StageSetPolicy{policy}, policies.Options{Lookup: params})
		if err != nil {
			t.Fatal(err)
		}
		return made.Observed(&seen)
	}
	warns, denies := set("Warn"), set("Deny")
	for name, test := range map[string]struct {
		first, second func(*pass)
		want          int // evaluations of the second pass
	}{
		"nothing":               {},
		"other policies":        {second: func(p *pass) { p.set = set("Warn") }, want: 2},
		"another StageSet":      {second: func(p *pass) { p.stored.Labels = map[string]string{"a": "b"} }, want: 2},
		"another Namespace":     {second: func(p *pass) { p.namespace.Labels = map[string]string{"a": "b"} }, want: 2},
		"another stage":         {second: func(p *pass) { p.stage = "other" }, want: 2},
		"another source":        {second: func(p *pass) { p.pin.Verified = true }, want: 2},
		"another account":       {second: func(p *pass) { p.target = as("other") }, want: 2},
		"another cluster":       {second: func(p *pass) { p.target.Server = "https://api" }, want: 2},
		"another object":        {second: func(p *pass) { p.objects[0].SetName("other") }, want: 2},
		"one object less":       {second: func(p *pass) { p.objects = p.objects[:1] }, want: 1},
		"other parameters":      {second: func(p *pass) { p.params.version = "8" }, want: 2},
		"parameters unknown":    {second: func(p *pass) { p.params.version = "" }, want: 2},
		"what was denied":       {first: func(p *pass) { p.set = denies }, second: func(p *pass) { p.set = denies }, want: 2},
		"what was not decided":  {first: func(p *pass) { p.params.version = "" }, want: 2},
		"policies of the first": {first: func(p *pass) { p.set = denies }, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			var now *policies.Set
			asked := New(func() *policies.Set { return now })
			run := func(changed func(*pass)) (int, string) {
				p := &pass{
					set: warns, stored: stored("a"), namespace: team.DeepCopy(), stage: "web", target: as("a"),
					pin:     source.Pin{Kind: v1.SourceKindGitRepository, Name: "app"},
					objects: []*unstructured.Unstructured{object("v1", "Secret", "a"), object("v1", "ConfigMap", "b")}, params: params,
				}
				params.version = "7"
				if changed != nil {
					changed(p)
				}
				now, seen.evaluations = p.set, 0
				_, review, err := asked.Admit(t.Context(), p.stored, p.namespace)
				if err != nil {
					t.Fatal(err)
				}
				review.Manifests(t.Context(), p.stage, p.pin, p.target, rendered(p.objects...))
				return seen.evaluations, review.Warnings()
			}
			first, warned := run(test.first)
			if first != 2 {
				t.Errorf("%d evaluations at first, want 2", first)
			}
			second, again := run(test.second)
			if second != test.want {
				t.Errorf("%d evaluations the second time, want %d", second, test.want)
			}
			if test.first == nil && test.second == nil {
				if diff := cmp.Diff(warned, again); diff != "" || warned == "" {
					t.Errorf("warnings (-first +second):\n%s", diff)
				}
			}
		})
	}
}

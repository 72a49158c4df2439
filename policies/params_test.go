package policies_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// lookup answers as it is told, and remembers what it was asked.
type lookup struct {
	limits []int64
	err    error
	asked  []string
}

func (l *lookup) Params(_ context.Context, query policies.ParamQuery) ([]*unstructured.Unstructured, error) {
	l.asked = append(l.asked, query.Policy+" "+query.String())
	var found []*unstructured.Unstructured
	for i, limit := range l.limits {
		object := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"stages": limit}}}
		object.SetKind(query.Kind.Kind)
		object.SetNamespace(query.Namespace)
		object.SetName(fmt.Sprintf("limits-%d", i))
		object.SetResourceVersion(fmt.Sprint(7 + i))
		found = append(found, object)
	}
	return found, l.err
}

const (
	byName     = "paramKind: {apiVersion: v1, kind: ConfigMap}\nparamRef: {name: limits}"
	bySelector = "paramKind: {apiVersion: v1, kind: ConfigMap}\n" +
		"paramRef: {namespace: platform, selector: {matchLabels: {a: b}}, parameterNotFoundAction: Allow}"
	atMost = "object.spec.stages.size() <= params.data.stages"
)

// TestParams: a policy is evaluated with each of its parameters, and without them only if it says so.
func TestParams(t *testing.T) {
	const none = "spec: p/paramRef: cannot be evaluated: params ConfigMap team-a/limits: there is none " +
		"(parameterNotFoundAction Deny)"
	named, selected := []string{"p params ConfigMap team-a/limits"}, []string{`p params ConfigMap platform/selected by "a=b"`}
	const unfound = `spec: p/paramRef: cannot be evaluated: params ConfigMap platform/selected by "a=b": `
	wrong := []string{"spec: p/rule: is wrong"}
	for name, test := range map[string]struct {
		spec            string
		lookup          *lookup
		asked           []string
		denied, ignored []string
	}{
		"kept": {byName, &lookup{limits: []int64{1}}, named, nil, nil},
		"not kept": {
			byName, &lookup{limits: []int64{0}}, named, wrong, nil,
		},
		"one of several is not kept": {
			bySelector, &lookup{limits: []int64{1, 0, 0}}, selected,
			wrong, nil,
		},
		"none":          {byName, &lookup{}, named, []string{none}, nil},
		"none, allowed": {bySelector, &lookup{}, selected, nil, nil},
		"none, ignored": {
			byName + "\nfailurePolicy: Ignore", &lookup{}, named, nil, []string{none},
		},
		"an error": {
			bySelector, &lookup{err: errors.New("there is no kind ConfigMap")}, selected,
			[]string{unfound + `there is no kind ConfigMap`}, nil,
		},
		"too many": {
			bySelector, &lookup{limits: make([]int64, 65)}, selected,
			[]string{unfound + `there are 65, more than 64`}, nil,
		},
		"not selected": {byName + "\nmatchConstraints: {namespaceSelector: {matchLabels: {no: no}}}", &lookup{}, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			list := []v1alpha1.StageSetPolicy{rule(t, "p", atMost, test.spec), rule(t, "q", "true", "")}
			set, err := policies.Compile(t.Context(), list, policies.Options{Lookup: test.lookup})
			if err != nil {
				t.Fatal(err)
			}
			got := set.Validate(t.Context(), creating(stageSet(t, "")))
			for _, diff := range []string{
				cmp.Diff(test.denied, said(got.Denied)), cmp.Diff(test.ignored, said(got.Ignored)),
				cmp.Diff(test.asked, test.lookup.asked),
			} {
				if diff != "" {
					t.Errorf("denied, ignored or asked (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestParamsAreNowhere: without anything to look into, a policy with parameters fails, and nothing else does.
func TestParamsAreNowhere(t *testing.T) {
	set := compile(t, rule(t, "p", "true", byName), rule(t, "q", "true", ""))
	want := []string{"spec: p/paramRef: cannot be evaluated: there is nowhere to look for parameters here"}
	if diff := cmp.Diff(want, said(set.Validate(t.Context(), creating(stageSet(t, ""))).Denied)); diff != "" {
		t.Errorf("denied (-want +got):\n%s", diff)
	}
}

// TestParamsOfMutations: a mutation is applied with each parameter in turn, and with none fails as a whole.
func TestParamsOfMutations(t *testing.T) {
	mutation := policy(t, "p", byName+`
mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{metadata: Object.metadata{labels:
  Object.metadata.labels{limit: string(params.data.stages)}}}"}}]`)
	for name, test := range map[string]struct {
		limits        []int64
		want, wantErr string
	}{
		"one": {[]int64{7}, "7", ""},
		"two": {[]int64{7, 8}, "7", ""},
		"none": {nil, "", "p/paramRef: cannot be evaluated: params ConfigMap team-a/limits: there is none " +
			"(parameterNotFoundAction Deny)"},
	} {
		t.Run(name, func(t *testing.T) {
			options := policies.Options{Lookup: &lookup{limits: test.limits}}
			set, err := policies.Compile(t.Context(), []v1alpha1.StageSetPolicy{mutation}, options)
			if err != nil {
				t.Fatal(err)
			}
			got, err := set.Default(t.Context(), creating(stageSet(t, "")))
			message := ""
			if err != nil {
				message = err.Error()
			}
			if diff := cmp.Diff([]string{test.want, test.wantErr}, []string{got.GetLabels()["limit"], message}); diff != "" {
				t.Errorf("label and error (-want +got):\n%s", diff)
			}
		})
	}
}

// TestParamsShareTheBudget: more parameters are not more budget, and other policies keep theirs.
func TestParamsShareTheBudget(t *testing.T) {
	// Much of the budget of a rule, in little time.
	text := strings.Repeat("x", 4000)
	costly := fmt.Sprintf("!'%s'.contains('%sy') && params.data.stages == 0", text, text)
	list := []v1alpha1.StageSetPolicy{rule(t, "p", costly, byName), rule(t, "q", "false", "")}
	options := policies.Options{Lookup: &lookup{limits: make([]int64, 64)}, Timeout: time.Minute}
	set, err := policies.Compile(t.Context(), list, options)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"spec: p/rule: cannot be evaluated: was not evaluated: the expressions of the request cost more than 2000000 units, " +
			"and those of this policy more than its share",
		"spec: q/rule: is wrong",
	}
	if diff := cmp.Diff(want, said(set.Validate(t.Context(), creating(stageSet(t, ""))).Denied)); diff != "" {
		t.Errorf("denied (-want +got):\n%s", diff)
	}
}

// TestParamsOfADecision: a decision says which objects, in which versions, its policies were evaluated with (P-15).
func TestParamsOfADecision(t *testing.T) {
	list := []v1alpha1.StageSetPolicy{
		rule(t, "q", atMost, byName), rule(t, "p", atMost, bySelector), rule(t, "r", "true", ""),
		rule(t, "unselected", atMost, byName+"\nmatchConstraints: {namespaceSelector: {matchLabels: {no: no}}}"),
	}
	set, err := policies.Compile(t.Context(), list, policies.Options{Lookup: &lookup{limits: []int64{1, 0}}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, param := range set.Validate(t.Context(), creating(stageSet(t, ""))).Params {
		got = append(got, param.String())
	}
	want := []string{
		"p: ConfigMap platform/limits-0, resourceVersion 7", "p: ConfigMap platform/limits-1, resourceVersion 8",
		"q: ConfigMap team-a/limits-0, resourceVersion 7", "q: ConfigMap team-a/limits-1, resourceVersion 8",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("params (-want +got):\n%s", diff)
	}
}

// TestParamsOf: whether a set would say the same again depends on the parameters that it would have, of the policies that are
// about the release.
func TestParamsOf(t *testing.T) {
	const about = "target: Manifest\n"
	elsewhere := about + byName + "\nmatchConstraints: {namespaceSelector: {matchLabels: {no: no}}}"
	excluded := about + byName + "\nmatchConstraints: {excludeNamespaces: [team-a]}"
	for name, test := range map[string]struct {
		specs  []string
		lookup policies.ParamLookup
		want   []string
		ok     bool
	}{
		"no policy":           {lookup: &lookup{}, ok: true},
		"none about it":       {[]string{elsewhere, excluded, byName}, silent{}, nil, true},
		"one":                 {[]string{about + byName, about}, &lookup{limits: []int64{1}}, []string{"7"}, true},
		"none, allowed":       {[]string{about + bySelector}, &lookup{}, nil, true},
		"none":                {[]string{about + byName}, &lookup{}, nil, false},
		"nobody can say":      {[]string{about + bySelector}, &lookup{err: errors.New("refused")}, nil, false},
		"nobody says in time": {[]string{about + byName}, silent{}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var list []v1alpha1.StageSetPolicy
				for i, spec := range test.specs {
					list = append(list, rule(t, fmt.Sprintf("p%d", i), "true", spec))
				}
				options := policies.Options{Lookup: test.lookup, Timeout: time.Second}
				set, err := policies.Compile(t.Context(), list, options)
				if err != nil {
					t.Fatal(err)
				}
				in := policies.SourceInput{StageSet: stageSet(t, ""), Namespace: namespace("team-a", nil)}
				got, ok := set.ParamsOf(t.Context(), v1alpha1.TargetManifest, in)
				var versions []string
				for _, param := range got {
					versions = append(versions, param.ResourceVersion)
				}
				if diff := cmp.Diff(test.want, versions); diff != "" || ok != test.ok {
					t.Errorf("ok is %t, versions (-want +got):\n%s", ok, diff)
				}
			})
		})
	}
}

// silent never answers.
type silent struct{}

func (silent) Params(ctx context.Context, _ policies.ParamQuery) ([]*unstructured.Unstructured, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestParamsThatNobodyAnswersFor: however many policies wait for an API server that is silent, they wait as long as one may,
// and all others are evaluated, in both directions of the alphabet.
func TestParamsThatNobodyAnswersFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var list []v1alpha1.StageSetPolicy
		for i := range 8 {
			waiting := rule(t, fmt.Sprintf("p%d", i), "true", byName)
			waiting.Spec.Mutations = sets(t, "", "Object{spec: Object.spec{suspend: true}}").Spec.Mutations
			list = append(list, waiting)
		}
		list = append(list, rule(t, "a", "false", ""), rule(t, "z", "false", ""),
			sets(t, "zz", "Object{spec: Object.spec{interval: '1m'}}"))
		const timeout = 2 * time.Second
		set, err := policies.Compile(t.Context(), list, policies.Options{Lookup: silent{}, Timeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		in := creating(stageSet(t, ""))
		want := []string{"spec: a/rule: is wrong"}
		for i := range 8 {
			want = append(want, fmt.Sprintf("spec: p%d/paramRef: cannot be evaluated: params ConfigMap team-a/limits: "+
				"the API server did not answer in time", i))
		}
		want = append(want, "spec: z/rule: is wrong")
		if diff := cmp.Diff(want, said(set.Validate(t.Context(), in).Denied)); diff != "" {
			t.Errorf("denied (-want +got):\n%s", diff)
		}
		got, err := set.Default(t.Context(), in)
		if err == nil || strings.Count(err.Error(), "did not answer in time") != 8 {
			t.Errorf("defaulting says %v", err)
		}
		if interval, _, _ := unstructured.NestedString(got.Object, "spec", "interval"); interval != "1m" {
			t.Errorf("the interval is %q", interval)
		}
	})
}

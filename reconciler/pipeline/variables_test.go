package pipeline

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/build"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/tenant"
)

// newValueReader is one that has read the objects; nil stands for one that does not exist.
func newValueReader(t *testing.T, objects map[valueSource]map[string]any) *valueReader {
	t.Helper()
	set := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "app"}}
	reader := &valueReader{set: set, readings: map[valueSource]reading{}}
	for source, data := range objects {
		if data == nil {
			reader.readings[source] = reading{missing: true}
			continue
		}
		found, err := reader.valuesOf(source, &unstructured.Unstructured{Object: map[string]any{"data": data}})
		if err != nil {
			t.Fatal(err)
		}
		reader.readings[source] = found
	}
	return reader
}

func TestVariablesOfAStage(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString([]byte("hunter22\n"))
	objects := map[valueSource]map[string]any{
		{v1.SubstituteConfigMap, "one"}: {"a": "one", "b": "one", "c": "one", "not-a-name": "x", "ca.crt": "x"},
		{v1.SubstituteSecret, "two"}:    {"b": encoded},
		{v1.SubstituteConfigMap, "two"}: nil,
	}
	one, two := v1.SubstituteReference{Kind: "ConfigMap", Name: "one"}, v1.SubstituteReference{Kind: "Secret", Name: "two"}
	cases := map[string]struct {
		spec     v1.PostBuild
		want     build.Variables
		problems []string
	}{
		"nothing": {want: build.Variables{}},
		"the last reference wins, and substitute over all": {
			spec: v1.PostBuild{SubstituteFrom: []v1.SubstituteReference{one, two}, Substitute: map[string]string{"c": "inline"}},
			want: build.Variables{"a": {Value: "one"}, "b": {Value: "hunter22\n", Secret: true}, "c": {Value: "inline"}},
		},
		"in another order": {
			spec: v1.PostBuild{SubstituteFrom: []v1.SubstituteReference{two, one}},
			want: build.Variables{"a": {Value: "one"}, "b": {Value: "one"}, "c": {Value: "one"}},
		},
		"missing": {
			spec:     v1.PostBuild{SubstituteFrom: []v1.SubstituteReference{{Kind: "ConfigMap", Name: "two"}}},
			want:     build.Variables{},
			problems: []string{"substituteFrom: ConfigMap team-a/two does not exist: create it, or set optional: true"},
		},
		"missing and optional": {
			spec: v1.PostBuild{SubstituteFrom: []v1.SubstituteReference{{Kind: "ConfigMap", Name: "two", Optional: true}}},
			want: build.Variables{},
		},
		"no name": {
			spec: v1.PostBuild{Substitute: map[string]string{"a-b": "1", "ok": "1", "1a": "1"}},
			want: build.Variables{"a-b": {Value: "1"}, "1a": {Value: "1"}, "ok": {Value: "1"}},
			problems: []string{
				`substitute: "1a" cannot be the name of a variable, which has letters, digits and _, and does not begin with a digit`,
				`substitute: "a-b" cannot be the name of a variable, which has letters, digits and _, and does not begin with a digit`,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := build.Variables{}
			var problems []string
			for _, problem := range newValueReader(t, objects).fill(t.Context(), got, &tc.spec) {
				problems = append(problems, problem.Error())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("variables (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.problems, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// noAccount knows no account, and the reconciler's own is not to be used.
type noAccount struct{ Tenants }

func (noAccount) Local(context.Context, tenant.Account) (*tenant.Reader, error) {
	return nil, failure.NewStalled(v1.ReasonServiceAccountRequired, "none is named")
}

// Nobody is asked when there is nobody to ask as, and values are told in no error.
func TestVariablesThatCannotBeRead(t *testing.T) {
	pinned := Pinned{Stages: []PinnedStage{
		{Stage: v1.Stage{Name: "none"}},
		{Stage: v1.Stage{Name: "app", PostBuild: &v1.PostBuild{SubstituteFrom: []v1.SubstituteReference{{Kind: "Secret", Name: "s"}}}}},
	}}
	err := (&Pipeline{Tenants: noAccount{}}).variables(t.Context(), &v1.StageSet{}, &pinned)
	failed := failure.From(err)
	if failed.Reason != v1.ReasonServiceAccountRequired || failed.Stage != "app" ||
		failed.Error() != "stage app: postBuild: substituteFrom is read as spec.serviceAccountName: set it: none is named" {
		t.Errorf("%s in %q: %v", failed.Reason, failed.Stage, failed)
	}
	if pinned.Stages[0].Variables != nil || pinned.Stages[1].Variables == nil {
		t.Errorf("variables %v, %v", pinned.Stages[0].Variables, pinned.Stages[1].Variables)
	}

	reader := newValueReader(t, nil)
	var lines []byte
	for i := range maxSecrets {
		lines = fmt.Appendf(lines, "canary-7Vq1-%d\n", i)
	}
	for name, data := range map[string]map[string]any{
		"not base64":     {"k": "canary-7Vq1!"},
		"no text":        {"k": map[string]any{"canary-7Vq1": "x"}},
		"too much":       {"k": base64.StdEncoding.EncodeToString([]byte(strings.Repeat("canary-7Vq1", maxValues/8)))},
		"too many lines": {"k": base64.StdEncoding.EncodeToString(lines)},
	} {
		_, err := reader.valuesOf(valueSource{v1.SubstituteSecret, "s"}, &unstructured.Unstructured{Object: map[string]any{"data": data}})
		if err == nil || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), "Secret team-a/s") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// Values are part of what a run is: another value is another run.
func TestIdentityHasVariables(t *testing.T) {
	identities := map[string]string{}
	for name, variables := range map[string]build.Variables{
		"none": nil, "no values": {}, "a value": {"a": {Value: "1"}}, "another": {"a": {Value: "2"}}, "a Secret's": {"a": {Value: "1", Secret: true}},
	} {
		pinned := Pinned{Stages: []PinnedStage{{Target: &tenant.Client{}, Variables: variables}}}
		identity := pinned.Identity()
		if other, same := identities[identity]; same {
			t.Errorf("%s is the same as %s", name, other)
		}
		identities[identity] = name
		if again := fmt.Sprint(pinned.Identity()); again != identity {
			t.Errorf("%s has two identities", name)
		}
	}
}

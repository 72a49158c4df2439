package policies_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

func explain(t *testing.T, spec string, in policies.ExplainInput) []policies.Explanation {
	t.Helper()
	policy := &v1alpha1.StageSetPolicy{}
	policy.Name = "p"
	if err := yaml.UnmarshalStrict([]byte(spec), &policy.Spec); err != nil {
		t.Fatal(err)
	}
	// Long before Explain itself would end.
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	found, err := policies.Explain(ctx, policy, policies.Options{}, in)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestExplainRedacts: whatever a policy does with the values of a Secret, they are not there.
func TestExplainRedacts(t *testing.T) {
	secret := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": "s", "annotations": map[string]any{
			"kubectl.kubernetes.io/last-applied-configuration": `{"stringData":{"password":"hunter2"}}`,
		}},
		"data": map[string]any{"password": "aHVudGVyMg=="}, "stringData": map[string]any{"other": "hunter2"},
	}}
	found := explain(t, `
target: Manifest
validations:
- {name: whole, expression: "object == {}", message: m, messageExpression: "'' + object.stringData.other"}
- {name: part, expression: "object.data.exists(k, object.data[k].startsWith('aHVu'))", message: m}
- name: split
  expression: "object.metadata.annotations.exists(k, object.metadata.annotations[k].split('hunter').size() > 1)"
  message: m
`, policies.ExplainInput{Manifest: &policies.ManifestInput{Object: secret}})
	text := fmt.Sprint(found)
	for _, value := range []string{"hunter2", "aHVudGVyMg"} {
		if strings.Contains(text, value) {
			t.Errorf("%s is in %s", value, text)
		}
	}
	for _, e := range found[2:] {
		if e.Value != "false" {
			t.Errorf("%s saw the values: it is %s", e.Field, e.Value)
		}
	}
	if secret.Object["stringData"].(map[string]any)["other"] != "hunter2" {
		t.Error("the object itself was changed")
	}
}

// TestExplainEnds: costs are not limited, but time is.
func TestExplainEnds(t *testing.T) {
	many := make([]any, 3000)
	for i := range many {
		many[i] = map[string]any{"name": fmt.Sprint("stage-", i), "sourceRef": map[string]any{"name": "x"}}
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "stages.metio.wtf/v1", "kind": "StageSet", "metadata": map[string]any{"name": "s", "namespace": "n"},
		"spec": map[string]any{"stages": many},
	}}
	found := explain(t, `
validations:
- name: cubic
  message: m
  expression: "object.spec.stages.all(a, object.spec.stages.all(b, object.spec.stages.all(c, a.name != b.name + c.name)))"
`, policies.ExplainInput{StageSet: &policies.Input{Object: object}})
	if want := "error: was not evaluated in time"; found[0].Value != want {
		t.Errorf("it is %s, want %s", found[0].Value, want)
	}
}

// TestExplainLoops: of a loop there is what its author wrote, and not what it is made of.
func TestExplainLoops(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"n": []any{int64(1), int64(2)}}}}
	for expression, want := range map[string]string{
		"object.spec.n.map(i, i + 1) == [2, 3]": `object.spec.n.map(i, i + 1) == [2, 3]: true
object.spec.n.map(i, i + 1): [2,3]
object.spec.n: [1,2]
object.spec: {"n":[1,2]}
i + 1: 3
i: 2
[2, 3]: [2,3]`,
		"object.spec.n.filter(i, i > 1).map(i, [i]).all(l, l.exists(i, i == 2))": `
object.spec.n.filter(i, i > 1).map(i, [i]).all(l, l.exists(i, i == 2)): true
object.spec.n.filter(i, i > 1).map(i, [i]): [[2]]
object.spec.n.filter(i, i > 1): [2]
object.spec.n: [1,2]
object.spec: {"n":[1,2]}
i: 2
i > 1: true
i: 2
[i]: [2]
i: 2
l.exists(i, i == 2): true
l: [2]
i == 2: true
i: 2`,
		"has(object.spec.m) || !has(object.spec.n)": `has(object.spec.m) || !has(object.spec.n): false
has(object.spec.m): false
object.spec: {"n":[1,2]}
!has(object.spec.n): false
has(object.spec.n): true
object.spec: {"n":[1,2]}`,
	} {
		found := explain(t, "validations: [{name: r, message: m, expression: '"+expression+"'}]",
			policies.ExplainInput{StageSet: &policies.Input{Object: object}})
		var got []string
		for _, step := range found[0].Steps {
			got = append(got, fmt.Sprintf("%s: %s", step.Text, step.Value))
		}
		if diff := cmp.Diff(strings.TrimSpace(want), strings.Join(got, "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", expression, diff)
		}
	}
}

// TestExplainAll: also what does not matter for the outcome has a value.
func TestExplainAll(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "stages.metio.wtf/v1", "kind": "StageSet", "metadata": map[string]any{"name": "s", "namespace": "n"},
	}}
	found := explain(t, `
validations: [{name: r, message: m, expression: "tenant || object.metadata.name == 's'"}]
`, policies.ExplainInput{StageSet: &policies.Input{Object: object}})
	var got []string
	for _, step := range found[0].Steps {
		got = append(got, fmt.Sprintf("%d:%d %s: %s", step.Line, step.Column, step.Text, step.Value))
	}
	want := `1:1 tenant || object.metadata.name == "s": true
1:1 tenant: true
1:11 object.metadata.name == "s": true
1:11 object.metadata.name: "s"
1:11 object.metadata: {"name":"s","namespace":"n"}`
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}

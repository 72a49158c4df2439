package docs_test

import (
	"regexp"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/health"
)

// The expressions in drift-and-health.md say of the object below them that it is healthy, and of one without a status that it
// is not.
func TestHealthExpressions(t *testing.T) {
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(read(t, "drift-and-health.md"), -1)
	if len(blocks) != 2 {
		t.Fatalf("drift-and-health.md has %d examples, want a StageSet and an object", len(blocks))
	}
	var set v1.StageSet
	if err := yaml.UnmarshalStrict([]byte(blocks[0][1]), &set); err != nil {
		t.Fatal(err)
	}
	expressions, err := health.Compile(set.Spec.Stages[0].ReadyChecks.Exprs)
	if err != nil {
		t.Fatal(err)
	}
	var object unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(blocks[1][1]), &object.Object); err != nil {
		t.Fatal(err)
	}
	judge := health.NewJudge(expressions)
	if got := judge.Of(t.Context(), &object); got != (health.Result{}) {
		t.Errorf("the object is %+v, want it healthy", got)
	}
	delete(object.Object, "status")
	if got := judge.Of(t.Context(), &object); got.Verdict != health.Progressing {
		t.Errorf("without a status it is %+v, want it in progress", got)
	}
}

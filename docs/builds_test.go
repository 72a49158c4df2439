package docs_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/build"
)

// Each example of sources-and-builds.md renders what it says: files and objects of the cluster, then a stage, then what
// the stage renders. The first line of each block says which of them it is.
func TestBuildExamples(t *testing.T) {
	files := fstest.MapFS{}
	var variables build.Variables
	var stage v1.Stage
	rendered := 0
	for _, block := range yamlBlock.FindAllStringSubmatch(read(t, "sources-and-builds.md"), -1) {
		title, text, _ := strings.Cut(strings.TrimPrefix(block[1], "# "), "\n")
		switch {
		case !strings.HasPrefix(block[1], "# "):
			// An object for the cluster: e2e asks an API server about it.
		case strings.HasPrefix(title, "in the cluster"):
			var object corev1.ConfigMap
			unmarshal(t, text, &object)
			variables = build.Variables{}
			for name, value := range object.Data {
				variables[name] = build.Variable{Value: value}
			}
		case title == "a stage":
			stage = v1.Stage{}
			unmarshal(t, text, &stage)
		case title == "what it renders":
			rendered++
			t.Run(stage.Name, func(t *testing.T) { renders(t, files, stage, variables, text) })
			variables = nil
		default:
			files[title] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	if rendered == 0 {
		t.Error("sources-and-builds.md has no examples")
	}
}

// renders compares what a stage renders with the text.
func renders(t *testing.T, files fstest.MapFS, stage v1.Stage, variables build.Variables, text string) {
	t.Helper()
	if stage.PostBuild != nil {
		if variables == nil {
			variables = build.Variables{}
		}
		for name, value := range stage.PostBuild.Substitute {
			variables[name] = build.Variable{Value: value}
		}
	}
	manifests, err := build.Build(t.Context(), files, build.OptionsOf(stage, variables))
	if err != nil {
		t.Fatal(err)
	}
	var got, want []any
	for _, object := range manifests.Objects() {
		got = append(got, object.Object)
	}
	for _, document := range strings.Split(text, "\n---\n") {
		var object map[string]any
		unmarshal(t, document, &object)
		want = append(want, object)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func unmarshal(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
}

package webhook

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// reordered is a warning about an update that changes the order among the stages that stay; empty for any other. Who applies
// some of the stages with server-side apply can do that to those of somebody else without a conflict, and without knowing.
func reordered(old, updated *unstructured.Unstructured) string {
	before, after := stageNames(old), stageNames(updated)
	stayed := slices.DeleteFunc(slices.Clone(before), func(name string) bool { return !slices.Contains(after, name) })
	stays := slices.DeleteFunc(slices.Clone(after), func(name string) bool { return !slices.Contains(before, name) })
	if slices.Equal(stayed, stays) {
		return ""
	}
	return "spec.stages: the order of the stages is another one now: " + strings.Join(after, ", ")
}

// stageNames are the names of a StageSet's stages in order.
func stageNames(set *unstructured.Unstructured) []string {
	stages, _, _ := unstructured.NestedSlice(set.Object, "spec", "stages")
	names := make([]string, 0, len(stages))
	for _, stage := range stages {
		fields, _ := stage.(map[string]any)
		name, _, _ := unstructured.NestedString(fields, "name")
		names = append(names, name)
	}
	return names
}

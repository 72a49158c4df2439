package controller

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// readOfSources are the fields of a source that its watch reads: what newArtifact compares, and what consumers looks up.
var readOfSources = [][]string{
	{"apiVersion"}, {"kind"},
	{"metadata", "namespace"}, {"metadata", "name"}, {"metadata", "uid"},
	{"metadata", "resourceVersion"}, {"metadata", "generation"},
	{"spec", "sourceRef"},
	{"status", "artifact", "digest"}, {"status", "artifact", "revision"}, {"status", "artifact", "url"},
}

// Lean is a cache.TransformFunc that drops what no watch reads: the managedFields of all objects, and of sources all but a few
// fields. A cluster has as many sources as StageSets, and each is read in full as its tenant anyway.
func Lean(obj any) (any, error) {
	source, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return cache.TransformStripManagedFields()(obj)
	}
	lean := &unstructured.Unstructured{Object: map[string]any{}}
	for _, path := range readOfSources {
		value, found, err := unstructured.NestedFieldNoCopy(source.Object, path...)
		if !found || err != nil {
			continue // of another type than the field should have: the watch takes it for missing
		}
		if err := unstructured.SetNestedField(lean.Object, value, path...); err != nil {
			return nil, err
		}
	}
	return lean, nil
}

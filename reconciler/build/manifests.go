package build

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Object is a rendered object.
type Object struct {
	*unstructured.Unstructured
	// Origin is where the object comes from: file:line, or the file alone where kustomize rendered it.
	Origin string
}

// Manifests are the rendered objects of a stage. They are shared between goroutines and passes: whoever wants to change an
// object changes a copy.
type Manifests struct {
	objects []Object
	ignored []string
	size    int64
}

// Objects are the objects in the order in which they were rendered. Neither the slice nor the objects may be changed.
func (m Manifests) Objects() []Object { return m.objects }

// Ignored are the files of a plain directory that are no manifests by their extension, sorted.
func (m Manifests) Ignored() []string { return m.ignored }

// Size is roughly what the objects take in memory, in bytes.
func (m Manifests) Size() int64 { return m.size }

package ociregistry

import "testing"

// New is an empty registry for one test.
func New(t testing.TB) *Registry {
	t.Helper()
	registry, err := Serve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := registry.Close(); err != nil {
			t.Errorf("closing the registry: %v", err)
		}
	})
	return registry
}

// MustPush is Push for a test, which fails on an error.
func (r *Registry) MustPush(t testing.TB, repository, tag string, files map[string]string) string {
	t.Helper()
	digest, err := r.Push(t.Context(), repository, tag, files)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

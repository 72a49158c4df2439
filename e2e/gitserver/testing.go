package gitserver

import "testing"

// New is an empty repository on a server of its own, for one test.
func New(t testing.TB, name string) *Repository {
	t.Helper()
	server, err := Serve(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("closing the Git server: %v", err)
		}
	})
	repository, err := server.Create(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return repository
}

// MustCommit is Commit for a test, which fails on an error.
func (r *Repository) MustCommit(t testing.TB, files map[string]string, deleted ...string) string {
	t.Helper()
	revision, err := r.Commit(t.Context(), files, deleted...)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

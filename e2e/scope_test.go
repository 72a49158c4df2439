package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// scope is a testing.TB for what tests share: it ends after the last test of the package, and not with the test that
// happens to be the first to need it.
type scope struct {
	testing.TB // of that first test, which fails if it cannot be started
}

// ending is what is to be done after the last test, and what went wrong then.
var ending struct {
	mu       sync.Mutex
	began    bool
	cleanups []func()
	problems []error
}

// endScopes runs the cleanups of all scopes, the last one first. It is called once, after the last test.
func endScopes() error {
	ending.mu.Lock()
	ending.began = true
	ending.mu.Unlock()
	for _, cleanup := range slices.Backward(ending.cleanups) {
		done := make(chan struct{})
		go func() { // which Fatal may end
			defer close(done)
			cleanup()
		}()
		<-done
	}
	return errors.Join(ending.problems...)
}

func (s scope) Cleanup(f func()) {
	ending.mu.Lock()
	defer ending.mu.Unlock()
	ending.cleanups = append(ending.cleanups, f)
}

func (s scope) Context() context.Context { return context.Background() }

func (s scope) TempDir() string {
	s.Helper()
	dir, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			s.Error(err)
		}
	})
	return dir
}

// The following are for cleanups: the test that the scope began with has ended by then.

// Fatal ends the cleanup, or the test that the scope begins with.
func (s scope) Fatal(args ...any) {
	s.Helper()
	s.fatal(fmt.Sprint(args...))
}

// Fatalf is Fatal with a format.
func (s scope) Fatalf(format string, args ...any) {
	s.Helper()
	s.fatal(fmt.Sprintf(format, args...))
}

func (s scope) fatal(message string) {
	s.Helper()
	ending.mu.Lock()
	began := ending.began
	ending.mu.Unlock()
	if !began {
		s.TB.Fatal(message)
	}
	s.Error(message)
	runtime.Goexit()
}

func (s scope) Error(args ...any) { s.Errorf("%s", fmt.Sprint(args...)) }

func (s scope) Errorf(format string, args ...any) {
	ending.mu.Lock()
	defer ending.mu.Unlock()
	ending.problems = append(ending.problems, fmt.Errorf(format, args...))
}

func (s scope) Failed() bool {
	ending.mu.Lock()
	defer ending.mu.Unlock()
	return len(ending.problems) > 0
}

func (s scope) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

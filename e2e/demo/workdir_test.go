package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDirectoryIsEmptiedByEachRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	for range 2 {
		held, err := openDirectory(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		left := filepath.Join(dir, "logs", "left.log")
		if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a file of the run before: %v", err)
		}
		if err := os.WriteFile(left, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := held.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDirectoryThatMustNotBeEmptied(t *testing.T) {
	for name, test := range map[string]struct {
		prepare    func(t *testing.T, dir string)
		kubeconfig string // in the directory
		want       string
	}{
		"somebody's files": {
			prepare: func(t *testing.T, dir string) { touch(t, filepath.Join(dir, "precious")) },
			want:    "did not make",
		},
		"the kubeconfig to use": {
			prepare:    func(t *testing.T, dir string) { touch(t, filepath.Join(dir, lockFile)) },
			kubeconfig: "precious",
			want:       "copy it elsewhere",
		},
		"another run": {
			prepare: func(t *testing.T, dir string) { hold(t, filepath.Join(dir, lockFile)) },
			want:    "in use",
		},
		"a control plane that runs": {
			prepare: func(t *testing.T, dir string) {
				touch(t, filepath.Join(dir, lockFile))
				hold(t, filepath.Join(dir, upLockFile))
			},
			want: "in use",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			test.prepare(t, dir)
			kubeconfig := test.kubeconfig
			if kubeconfig != "" {
				kubeconfig = filepath.Join(dir, kubeconfig)
				touch(t, kubeconfig)
			}
			before, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := openDirectory(dir, kubeconfig); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			for _, entry := range before {
				if _, err := os.Stat(filepath.Join(dir, entry.Name())); err != nil {
					t.Errorf("after the refusal: %v", err)
				}
			}
		})
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func hold(t *testing.T, path string) {
	t.Helper()
	held, err := lock(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { held.Close() })
}

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// module is the first line of this repository's go.mod.
var module = []byte("module github.com/stageset/stageset\n")

// Binary is the absolute path of bin/<name> of this repository. If it is missing, the Makefile builds it: minutes for
// the larger ones, once.
func Binary(name string) (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, build(root, filepath.Join("bin", name))
}

// build makes one target at a time: the tests of several packages run side by side and need the same binaries.
func build(root, target string) error {
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(root, "bin", ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // releases it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("waiting for other builds: %w", err)
	}
	fmt.Fprintf(os.Stderr, "building %s, which is missing\n", target)
	command := exec.Command("make", "--no-print-directory", target)
	command.Dir = root
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("make %s: %w\n%s", target, err, output)
	}
	return nil
}

// repository is the root of the checkout that the test runs in: go test runs each package in its own folder.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(content, module) {
			return dir, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("the tests do not run in a checkout of the repository, so there is no Makefile to build from")
		}
		dir = parent
	}
}

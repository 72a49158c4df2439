package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Locks in the directory of a run. The kernel releases them when their process ends.
const (
	lockFile     = "demo.lock" // this program's, and the mark that the directory is its own
	upLockFile   = "lock"      // that of "controlplane up"
	modulePrefix = "module github.com/stageset/stageset\n"
)

// openDirectory makes the directory of a run, or empties that of an earlier one, and locks it until the returned file is
// closed. It empties no directory that another program made.
func openDirectory(path, kubeconfig string) (*os.File, error) {
	if within(path, kubeconfig) {
		return nil, fmt.Errorf("the kubeconfig %s is inside %s, which each run empties: copy it elsewhere", kubeconfig, path)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(path, lockFile)); len(entries) > 0 && errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s holds files that this program did not make: remove them, or name another directory with --dir",
			path)
	}
	held, err := lock(filepath.Join(path, lockFile))
	if err != nil {
		return nil, err
	}
	up, err := lock(filepath.Join(path, upLockFile))
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	defer up.Close()
	for _, entry := range entries {
		if entry.Name() == lockFile {
			continue
		}
		if err := os.RemoveAll(filepath.Join(path, entry.Name())); err != nil {
			return nil, errors.Join(err, held.Close())
		}
	}
	if err := makeFolders(path); err != nil {
		return nil, errors.Join(err, held.Close())
	}
	return held, nil
}

// makeFolders makes what is missing in the directory of a run.
func makeFolders(path string) error {
	for _, folder := range []string{"logs", "git", "artifacts", "sources", "kubeconfigs"} {
		if err := os.MkdirAll(filepath.Join(path, folder), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// lock locks a file, and makes it if it is missing.
func lock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%s is in use by another run: stop that one, or name another directory with --dir", filepath.Dir(path))
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// within says whether a path, if there is one, is below a directory.
func within(directory, path string) bool {
	relative, err := filepath.Rel(directory, path)
	return path != "" && err == nil && relative != ".." && !strings.HasPrefix(relative, ".."+string(filepath.Separator))
}

// repository is the root of the checkout that this runs in: what is built and what is installed is there.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(content, []byte(modulePrefix)) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("this runs in a checkout of the repository only: use \"make run\" there")
		}
		dir = parent
	}
}

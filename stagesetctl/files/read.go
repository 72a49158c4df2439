package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// MaxSize bounds what a Reader reads altogether, in bytes.
const MaxSize = 32 << 20

// Stdin is the path that stands for standard input.
const Stdin = "-"

// Reader reads the files of one command. It is not safe for concurrent use.
type Reader struct {
	// In is what Stdin stands for. It can be read once.
	In io.Reader

	stdin bool  // whether it has been
	size  int64 // of what has been read
}

// Read is the documents of all paths, in order: of files, and of the *.yaml, *.yml and *.json files in directories and those
// below, sorted, but for those whose name begins with a dot. Lists stand for their items. Nothing is returned if something
// cannot be read. The error is Problems if that is because of what is in the files.
func (r *Reader) Read(paths ...string) ([]Document, error) {
	var documents []Document
	var problems Problems
	var unread []error
	for _, path := range paths {
		names, err := expand(path)
		if err != nil {
			unread = append(unread, unreadable(path, err))
			continue
		}
		for _, name := range names {
			text, err := r.text(name)
			if err != nil {
				unread = append(unread, unreadable(name, err))
				continue
			}
			found, wrong := parse(name, text)
			documents, problems = append(documents, found...), append(problems, wrong...)
		}
	}
	if len(unread) > 0 {
		return nil, errors.Join(append(unread, problems.orNil())...)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return documents, nil
}

// unreadable leaves out what the operating system repeats: the path.
func unreadable(path string, err error) error {
	var failed *fs.PathError
	if errors.As(err, &failed) {
		err = failed.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// expand is path, or the files in the directory path.
func expand(path string) ([]string, error) {
	if path == Stdin {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var names []string
	// The separator has a link to a directory followed; links below are not, because they may lead to where they are.
	root := path + string(filepath.Separator)
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(filepath.Base(name), ".") && name != root
		switch {
		case err != nil:
			return err
		case entry.IsDir() && hidden:
			return fs.SkipDir
		case entry.IsDir() || hidden || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)):
			return nil
		}
		// A file that is linked to is one; what would block, or never end, is none.
		if info, err := os.Stat(name); err != nil || info.Mode().IsRegular() {
			names = append(names, filepath.Clean(name))
		}
		return nil
	})
	if err == nil && len(names) == 0 {
		err = errors.New("has no *.yaml, *.yml or *.json file")
	}
	return names, err
}

func (r *Reader) text(name string) (string, error) {
	in := r.In
	if name == Stdin {
		if r.stdin {
			return "", errors.New("standard input can be read once, and is named twice")
		}
		r.stdin = true
	} else {
		file, err := os.Open(name)
		if err != nil {
			return "", err
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	content, err := io.ReadAll(io.LimitReader(in, MaxSize-r.size+1))
	r.size += int64(len(content))
	if err == nil && r.size > MaxSize {
		err = fmt.Errorf("there are more than %d MiB to read", MaxSize>>20)
	}
	return string(content), err
}

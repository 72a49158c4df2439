package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// MaxSize bounds what is read from one file, in bytes.
const MaxSize = 16 << 20

// Stdin is the path that stands for standard input.
const Stdin = "-"

// Reader reads files.
type Reader struct {
	// In is what Stdin stands for.
	In io.Reader
}

// Read is the documents of all paths, in order: of files, and of the *.yaml, *.yml and *.json files in directories and those
// below, sorted. Nothing is returned if something cannot be read. The error is Problems if that
// is because of what is in the files.
func (r Reader) Read(paths ...string) ([]Document, error) {
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
	err = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) {
			names = append(names, name)
		}
		return err
	})
	if err == nil && len(names) == 0 {
		err = errors.New("has no *.yaml, *.yml or *.json file")
	}
	return names, err
}

func (r Reader) text(name string) (text string, err error) {
	in := r.In
	if name != Stdin {
		file, err := os.Open(name)
		if err != nil {
			return "", err
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	content, err := io.ReadAll(io.LimitReader(in, MaxSize+1))
	if err == nil && len(content) > MaxSize {
		err = fmt.Errorf("is larger than %d bytes", MaxSize)
	}
	return string(content), err
}

package source

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path"
)

// seal is the record of a finished directory.
type seal struct {
	// Sum is contents.sum of the tree.
	Sum string `json:"sum"`
	// Bytes is what the tree takes on disk.
	Bytes int64 `json:"bytes"`
}

func (s *store) writeSeal(work string, sealed seal) error {
	raw, err := json.Marshal(sealed)
	if err != nil {
		return err
	}
	if err := s.root.WriteFile(path.Join(work, sealName), raw, 0o600); err != nil {
		return &diskError{err}
	}
	return nil
}

// verify compares the entry of that name, left by an earlier process, with its seal. If it is not what it must be, it is
// dropped.
func (s *store) verify(name string) {
	s.mutex.Lock()
	e := s.entries[name]
	s.mutex.Unlock()
	if e == nil || e.verified {
		return
	}
	sum, err := s.sumOf(e)
	s.mutex.Lock()
	var dropped []string
	switch {
	case s.entries[name] != e: // evicted meanwhile
	case err != nil || sum != e.seal.Sum:
		dropped = append(dropped, s.drop(e))
	default:
		e.verified = true
	}
	s.mutex.Unlock()
	s.remove(dropped)
}

func (s *store) sumOf(e *entry) (string, error) {
	tree, err := s.root.OpenRoot(path.Join(e.name, treeName))
	if err != nil {
		return "", err
	}
	defer tree.Close()
	files := contents{}
	err = fs.WalkDir(tree.FS(), ".", func(name string, found fs.DirEntry, err error) error {
		if err != nil || found.IsDir() {
			return err
		}
		if !found.Type().IsRegular() {
			return errors.New("not a regular file")
		}
		file, err := tree.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		files[name], err = sumFile(file)
		return err
	})
	return files.sum(), err
}

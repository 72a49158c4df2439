package build

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"

	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// vettedFiles is the file system that kustomize sees: the files and directories that a scan found, with the content that
// the scan understood, under absolute paths. Nothing can be written, and nothing else can be read.
type vettedFiles struct {
	scan *scan
	// alive is nil until the build must end.
	alive func() error
}

var _ filesys.FileSystem = vettedFiles{}

var errReadOnly = errors.New("the artifact is read-only")

// ReadFile gives the content of a file that the scan found.
func (v vettedFiles) ReadFile(name string) ([]byte, error) {
	if err := v.alive(); err != nil {
		return nil, err
	}
	content, found := v.scan.files[path.Clean(name)]
	if !found {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return content, nil
}

// CleanedAbs splits name into directory and file.
func (v vettedFiles) CleanedAbs(name string) (filesys.ConfirmedDir, string, error) {
	clean := path.Clean("/" + name)
	switch {
	case v.IsDir(clean):
		return filesys.ConfirmedDir(clean), "", nil
	case v.Exists(clean):
		return filesys.ConfirmedDir(path.Dir(clean)), path.Base(clean), nil
	default:
		return "", "", fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
}

// IsDir says whether name is a directory with a kustomization that the scan entered.
func (v vettedFiles) IsDir(name string) bool {
	_, found := v.scan.kustomizations[relative(name)]
	return found
}

// Exists says whether name is a file or directory that the scan found.
func (v vettedFiles) Exists(name string) bool {
	_, found := v.scan.files[path.Clean(name)]
	return found || v.IsDir(name)
}

// relative is name as the artifact has it.
func relative(name string) string {
	if clean := path.Clean("/" + name); clean != "/" {
		return clean[1:]
	}
	return "."
}

// Create does not.
func (vettedFiles) Create(string) (filesys.File, error) { return nil, errReadOnly }

// Mkdir does not.
func (vettedFiles) Mkdir(string) error { return errReadOnly }

// MkdirAll does not.
func (vettedFiles) MkdirAll(string) error { return errReadOnly }

// RemoveAll does not.
func (vettedFiles) RemoveAll(string) error { return errReadOnly }

// WriteFile does not.
func (vettedFiles) WriteFile(string, []byte) error { return errReadOnly }

// Open is not needed: kustomize reads whole files.
func (vettedFiles) Open(string) (filesys.File, error) { return nil, errReadOnly }

// ReadDir is not needed: a kustomization names its files.
func (vettedFiles) ReadDir(string) ([]string, error) { return nil, errReadOnly }

// Glob is not needed: a kustomization has no patterns.
func (vettedFiles) Glob(string) ([]string, error) { return nil, errReadOnly }

// Walk is not needed: a kustomization names its files.
func (vettedFiles) Walk(string, filepath.WalkFunc) error { return errReadOnly }

// Package stageset_test holds what ARCHITECTURE.md says against the source: who imports whom, and how large a thing may
// grow. It reads syntax only, and says nothing about what the code does.
package stageset_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/stageset/stageset"

// source is a file of the repository.
type source struct {
	path   string // from the root
	syntax *ast.File
	files  *token.FileSet
	lines  int
}

// dir is the folder of the file: the package's path in the module.
func (s source) dir() string { return path.Dir(s.path) }

// top is the first folder of the file, "." at the root.
func (s source) top() string { return firstFolder(s.dir()) }

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// position is where in the repository a node is.
func (s source) position(node ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.files.Position(node.Pos()).Line)
}

// imports are the paths that the file imports.
func (s source) imports(t *testing.T) []string {
	t.Helper()
	var paths []string
	for _, spec := range s.syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, imported)
	}
	return paths
}

// inModule is the path of a package in the module, and whether it is of the module.
func inModule(imported string) (string, bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}

func firstFolder(dir string) string {
	first, _, _ := strings.Cut(dir, "/")
	return first
}

// within says whether a package is the given one or below it.
func within(pkg, parent string) bool {
	return pkg == parent || strings.HasPrefix(pkg, parent+"/")
}

// sources are all Go files that somebody wrote, also those of the modules below e2e.
func sources(t *testing.T) []source {
	t.Helper()
	found, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatal("there are no Go files")
	}
	return found
}

// parsed is what all tests look at; none of them changes it.
var parsed = sync.OnceValues(func() ([]source, error) {
	var found []source
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := filepath.Base(name)
		if entry.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "bin" || base == "testdata") {
			return fs.SkipDir
		}
		if entry.IsDir() || filepath.Ext(name) != ".go" {
			return nil
		}
		files := token.NewFileSet()
		syntax, err := parser.ParseFile(files, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if !ast.IsGenerated(syntax) {
			lines := files.File(syntax.Pos()).LineCount()
			found = append(found, source{path: filepath.ToSlash(name), syntax: syntax, files: files, lines: lines})
		}
		return nil
	})
	return found, err
})

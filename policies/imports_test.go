package policies_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestOnlyCelenvImportsCEL: the packages whose interfaces are not stable are imported in one place, in the whole module.
func TestOnlyCelenvImportsCEL(t *testing.T) {
	const root, allowed = "..", "policies/internal/celenv"
	unstable := []string{"k8s.io/apiserver/pkg/cel", "k8s.io/apiserver/pkg/admission", "github.com/google/cel-go"}
	seen := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if path != root && (err == nil || strings.HasPrefix(entry.Name(), ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			for _, prefix := range unstable {
				if imported != prefix && !strings.HasPrefix(imported, prefix+"/") {
					continue
				}
				seen++
				if filepath.ToSlash(filepath.Dir(relative)) != allowed {
					t.Errorf("%s imports %s, which only %s may", relative, imported, allowed)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Error("nothing imports CEL: the test looks in the wrong place")
	}
}

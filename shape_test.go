package stageset_test

import (
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"testing"
)

// How large something may be before it is something else. Tests may be longer.
const (
	maxFileLines  = 500
	maxFuncLines  = 80
	maxParameters = 5
	maxMethods    = 3 // of an interface
	maxPackages   = 8 // of the module, imported by a package
)

// Names that say nothing of what is in a package.
var emptyNames = []string{
	"base", "common", "core", "helper", "helpers", "lib", "manager", "misc", "shared", "types", "util", "utils",
}

func TestSizes(t *testing.T) {
	for _, file := range sources(t) {
		if file.isTest() {
			continue
		}
		if file.lines > maxFileLines {
			t.Errorf("%s has %d lines: at most %d", file.path, file.lines, maxFileLines)
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.FuncDecl:
				lines := file.files.Position(node.End()).Line - file.files.Position(node.Pos()).Line + 1
				if lines > maxFuncLines {
					t.Errorf("%s: %s has %d lines: at most %d", file.position(node), node.Name.Name, lines, maxFuncLines)
				}
				if n := node.Type.Params.NumFields(); n > maxParameters {
					t.Errorf("%s: %s takes %d parameters: at most %d", file.position(node), node.Name.Name, n, maxParameters)
				}
			case *ast.InterfaceType:
				if n := node.Methods.NumFields(); n > maxMethods {
					t.Errorf("%s: an interface with %d methods: at most %d", file.position(node), n, maxMethods)
				}
			}
			return true
		})
	}
}

// Wiring packages know all parts; every other package knows few.
func TestFanOut(t *testing.T) {
	imports := map[string]map[string]bool{}
	for _, file := range sources(t) {
		for _, imported := range file.imports(t) {
			dir, ours := inModule(imported)
			if !ours || file.isTest() || path.Base(file.dir()) == "app" {
				continue
			}
			if imports[file.dir()] == nil {
				imports[file.dir()] = map[string]bool{}
			}
			imports[file.dir()][dir] = true
		}
	}
	for dir, packages := range imports {
		if len(packages) > maxPackages {
			t.Errorf("%s imports %d packages of the module, at most %d: %v",
				dir, len(packages), maxPackages, slices.Sorted(maps.Keys(packages)))
		}
	}
}

func TestPackagesSayWhatTheyAre(t *testing.T) {
	documented := map[string]bool{}
	for _, file := range sources(t) {
		name := file.syntax.Name.Name
		if slices.Contains(emptyNames, name) {
			t.Errorf("%s: package %s: the name says nothing", file.path, name)
		}
		documented[file.dir()] = documented[file.dir()] || file.syntax.Doc != nil
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s has no package comment", dir)
		}
	}
}

func TestExportedIsDocumented(t *testing.T) {
	for _, file := range sources(t) {
		if file.isTest() {
			continue
		}
		for _, declaration := range file.syntax.Decls {
			switch declaration := declaration.(type) {
			case *ast.FuncDecl:
				if declaration.Name.IsExported() && declaration.Doc == nil && exportedReceiver(declaration) {
					t.Errorf("%s: %s has no comment", file.position(declaration), declaration.Name.Name)
				}
			case *ast.GenDecl:
				for _, name := range undocumented(declaration) {
					t.Errorf("%s: %s has no comment", file.position(declaration), name)
				}
			}
		}
	}
}

// exportedReceiver is false for a method of a type that nobody else can name.
func exportedReceiver(function *ast.FuncDecl) bool {
	if function.Recv == nil {
		return true
	}
	receiver := function.Recv.List[0].Type
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	if generic, ok := receiver.(*ast.IndexExpr); ok {
		receiver = generic.X
	}
	name, ok := receiver.(*ast.Ident)
	return ok && name.IsExported()
}

// undocumented are the exported names of a declaration without a comment: their own, or that of their group.
func undocumented(declaration *ast.GenDecl) []string {
	var names []string
	for _, spec := range declaration.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() && spec.Doc == nil && declaration.Doc == nil {
				names = append(names, spec.Name.Name)
			}
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				if name.IsExported() && spec.Doc == nil && spec.Comment == nil && declaration.Doc == nil {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

var clockFunctions = regexp.MustCompile(`^(Now|Since|Until|Sleep|After|AfterFunc|Tick|NewTimer|NewTicker)$`)

// The product takes the time from a clock that tests can set, and never sleeps; tests do not sleep either.
func TestTimeComesFromAClock(t *testing.T) {
	for _, file := range sources(t) {
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			selector, ok := node.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			from, ok := selector.X.(*ast.Ident)
			if !ok || from.Name != "time" || !clockFunctions.MatchString(selector.Sel.Name) {
				return true
			}
			if selector.Sel.Name == "Sleep" || !file.isTest() && file.top() != "e2e" {
				t.Errorf("%s uses time.%s", file.position(selector), selector.Sel.Name)
			}
			return true
		})
	}
}

// What postpones a decision or switches a check off.
func TestNothingIsPutOff(t *testing.T) {
	marks := regexp.MustCompile(`\b(TO[D]O|FIX[M]E|no[l]int|lint:[i]gnore)\b`) // not to be found here
	for _, file := range sources(t) {
		for _, group := range file.syntax.Comments {
			for _, comment := range group.List {
				if found := marks.FindString(comment.Text); found != "" {
					t.Errorf("%s: %s", file.position(comment), found)
				}
			}
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			selector, ok := node.(*ast.SelectorExpr)
			if ok && file.isTest() && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, selector.Sel.Name) {
				t.Errorf("%s skips a test", file.position(selector))
			}
			return true
		})
	}
}

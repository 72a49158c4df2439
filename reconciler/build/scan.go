package build

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
)

// scan reads every file that a kustomization reaches, checks it, and keeps what kustomize may see of it: kustomizations as
// they were understood, with references that nothing takes for a URL; YAML files as JSON, without the anchors that
// kustomize expands without a limit; files of generators as they are.
type scan struct {
	parser
	from *builder
	// files is what kustomize sees, by absolute path.
	files map[string][]byte
	// kustomizations are the directories that were entered.
	kustomizations map[string]*kustomization
	// origins is file:line of resources by group, kind and name; empty where there is more than one.
	origins map[string]string
	// stageDir is the directory that the components of the stage are added to; nil for none.
	stageDir   string
	components *stageComponents
	// secrets are values that no message may hold.
	secrets Secrets
}

// kustomization is a directory with a kustomization file.
type kustomization struct {
	file string
	// visits and bytes are what kustomize does when it enters the directory once: it keeps nothing from one visit to the
	// next.
	visits int
	bytes  int
	// component says that it is of kind Component.
	component bool

	// dir and content are where it is and what it says, once it is vetted; items are the objects of its own files, bases and
	// components the directories that it includes.
	dir               string
	content           *types.Kustomization
	items             []*item
	bases, components []string
}

func newScan(b *builder) *scan {
	return &scan{
		parser: parser{objects: objectBudget()}, from: b, files: map[string][]byte{},
		kustomizations: map[string]*kustomization{}, origins: map[string]string{},
	}
}

// enter reads the kustomization in dir and all that it reaches. trail are the directories that lead to it.
func (s *scan) enter(ctx context.Context, dir string, trail []string) (*kustomization, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkTrail(dir, trail); err != nil {
		return nil, err
	}
	if known := s.kustomizations[dir]; known != nil {
		return known, nil
	}
	at, content, err := s.load(dir)
	if err != nil {
		return nil, err
	}
	s.kustomizations[dir] = at.within
	trail = append(trail[:len(trail):len(trail)], dir)
	if err := s.vet(ctx, at, content, trail); err != nil {
		return nil, err
	}
	if err := s.addComponents(ctx, at, content, trail); err != nil {
		return nil, err
	}
	at.within.dir, at.within.content = dir, content
	text, err := encode(content)
	if err != nil {
		return nil, at.fail("", "%w", err)
	}
	s.files["/"+at.file] = text
	return at.within, nil
}

// checkTrail refuses a directory that would be entered within itself, and endless chains. kustomize, too, refuses a base
// that contains the kustomization that names it.
func checkTrail(dir string, trail []string) error {
	for _, above := range trail {
		if dir == above || dir == "." || strings.HasPrefix(above, dir+"/") {
			return fmt.Errorf("kustomizations include each other: %s", chain(append(trail[:len(trail):len(trail)], dir)))
		}
	}
	if len(trail) >= maxBaseDepth {
		return fmt.Errorf("more than %d kustomizations include one another: %s", maxBaseDepth, chain(trail))
	}
	return nil
}

// chain shows directories, long ones in part.
func chain(trail []string) string {
	const shown = 4
	if len(trail) > 2*shown {
		trail = slices.Concat(trail[:shown], []string{"…"}, trail[len(trail)-shown:])
	}
	return strings.Join(trail, " → ")
}

// load reads the kustomization file in dir.
func (s *scan) load(dir string) (site, *types.Kustomization, error) {
	if s.isPlain(dir) {
		return s.generate(dir)
	}
	file, err := s.kustomizationFile(dir)
	if err != nil {
		return site{}, nil, err
	}
	at := site{file: file, dir: dir, within: &kustomization{file: file, visits: 1}}
	data, err := s.read(at, file)
	if err != nil {
		return at, nil, err
	}
	documents, err := s.parse(file, data)
	if err != nil {
		return at, nil, err
	}
	if len(documents) != 1 {
		return at, nil, located(file, 0, "a kustomization is one document; this has %d", len(documents))
	}
	at.lines = documents[0].lines
	content, err := decodeKustomization(at, documents[0])
	if err != nil {
		return at, nil, err
	}
	at.within.component = content.Kind == types.ComponentKind
	return at, content, nil
}

// kustomizationFile is the path of the kustomization file of a directory.
func (s *scan) kustomizationFile(dir string) (string, error) {
	var found []string
	for _, name := range kustomizationNames {
		file := path.Join(dir, name)
		info, err := fs.Stat(s.from.artifact, file)
		if err == nil && !info.IsDir() {
			found = append(found, file)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("directory %q has no kustomization file", dir)
	default:
		return "", fmt.Errorf("directory %q has more than one kustomization file: %s", dir, strings.Join(found, ", "))
	}
}

var unknownField = regexp.MustCompile(`unknown field "([^"]*)"`)

// decodeKustomization is what kustomize understands of a kustomization file.
func decodeKustomization(at site, d document) (*types.Kustomization, error) {
	fields, ok := d.value.(map[string]any)
	if !ok {
		return nil, at.fail("", "a kustomization is a mapping; this is a %s", kindOfValue(d.value))
	}
	for _, field := range []string{"openapi", "helmCharts", "helmGlobals", "helmChartInflationGenerator"} {
		for key := range fields {
			if strings.EqualFold(key, field) {
				return nil, at.fail(key, "%s is not supported", key)
			}
		}
	}
	text, err := encode(fields)
	if err != nil {
		return nil, at.fail("", "%w", err)
	}
	var content types.Kustomization
	if err := content.Unmarshal(text); err != nil {
		field := ""
		if match := unknownField.FindStringSubmatch(err.Error()); match != nil {
			field = match[1]
		}
		return nil, at.fail(field, "%s", withoutValues(err.Error()))
	}
	content.FixKustomization()
	if problems := content.EnforceFields(); len(problems) > 0 {
		return nil, at.fail("", "%s", strings.Join(problems, "; "))
	}
	return &content, nil
}

// read is the content of a file of the artifact.
func (s *scan) read(at site, name string) ([]byte, error) {
	data, err := s.from.readFile(name)
	at.within.bytes += len(data)
	return data, err
}

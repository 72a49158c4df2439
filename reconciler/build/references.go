package build

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// remoteForm is the form of what kustomize would fetch.
var remoteForm = regexp.MustCompile(`(?i)^(git::|https?:|[a-z][a-z0-9+.-]*://|github\.com[/:]|[a-z][a-z0-9-]*@[^/]*[/:])`)

// site is where in the artifact something is said, for messages and for relative paths.
type site struct {
	file string
	dir  string
	// lines finds the line of a text in the file.
	lines func(text string) int
	// within is the kustomization that says it.
	within *kustomization
}

// fail is an error at the line of the site that has text, or at its first line.
func (at site) fail(text, format string, args ...any) error {
	line := 0
	if at.lines != nil {
		line = at.lines(text)
	}
	return located(at.file, line, format, args...)
}

// target is a file or directory that a kustomization refers to.
type target struct {
	// name is the path in the artifact.
	name string
	// reference is how the kustomization refers to it, in a form that nothing takes for a URL: it begins with a dot.
	reference string
	isDir     bool
}

// resolve finds what reference in field leads to. It must be in the artifact.
func (s *scan) resolve(at site, field, reference string) (target, error) {
	if reference == "" {
		return target{}, at.fail(field, "%s: a path is empty", field)
	}
	clean := path.Clean(reference)
	name := path.Join(at.dir, clean)
	if !path.IsAbs(clean) && fs.ValidPath(name) {
		info, err := fs.Stat(s.from.artifact, name)
		if err == nil {
			if !strings.HasPrefix(clean, ".") {
				clean = "./" + clean
			}
			return target{name: name, reference: clean, isDir: info.IsDir()}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return target{}, at.fail(reference, "%s: %q: %w", field, shorten(reference), errors.Unwrap(err))
		}
	}
	switch {
	case remoteForm.MatchString(reference):
		return target{}, at.fail(reference, "%s: %q is remote; what a build uses must be in the artifact",
			field, withoutCredentials(reference))
	case path.IsAbs(clean):
		return target{}, at.fail(reference, "%s: %q is an absolute path", field, shorten(reference))
	case !fs.ValidPath(name):
		return target{}, at.fail(reference, "%s: %q leads out of the artifact", field, shorten(reference))
	default:
		return target{}, at.fail(reference, "%s: %q does not exist in the artifact", field, shorten(reference))
	}
}

// withoutCredentials is a URL without user and query.
func withoutCredentials(reference string) string {
	u, err := url.Parse(reference)
	if err != nil || u.Host == "" {
		_, rest, found := strings.Cut(reference, "@")
		if found {
			reference = "…@" + rest
		}
		return shorten(reference)
	}
	return shorten(fmt.Sprintf("%s://%s%s", u.Scheme, u.Host, u.Path))
}

// yamlFile resolves a reference to a file of YAML or JSON and offers kustomize its documents, in which there are no anchors.
// It gives the reference to use and the documents.
func (s *scan) yamlFile(at site, field, reference string) (string, []document, error) {
	to, err := s.resolve(at, field, reference)
	if err != nil {
		return "", nil, err
	}
	documents, err := s.documents(at, field, reference, to)
	if err != nil {
		return "", nil, err
	}
	if len(documents) == 0 {
		return "", nil, at.fail(reference, "%s: %q is empty", field, shorten(reference))
	}
	return to.reference, documents, s.offer(to.name, documents)
}

// documents are those of the file that reference leads to.
func (s *scan) documents(at site, field, reference string, to target) ([]document, error) {
	if to.isDir {
		return nil, at.fail(reference, "%s: %q is a directory; name its files", field, shorten(reference))
	}
	data, err := s.read(at, to.name)
	if err != nil {
		return nil, err
	}
	return s.parse(to.name, data)
}

// offer gives kustomize documents as the content of a file.
func (s *scan) offer(name string, documents []document) error {
	content, err := encodeAll(documents)
	if err != nil {
		return located(name, 0, "%w", err)
	}
	s.files["/"+name] = content
	return nil
}

// dataDir is where kustomize finds files whose bytes count: the same file may also be read as YAML. No path in an artifact
// has that name.
const dataDir = "/\x00data"

// dataFile resolves a reference to a file of any content. It gives the reference to use and the content.
func (s *scan) dataFile(at site, field, reference string) (string, []byte, error) {
	to, err := s.resolve(at, field, reference)
	if err != nil {
		return "", nil, err
	}
	if to.isDir {
		return "", nil, at.fail(reference, "%s: %q is a directory; name its files", field, shorten(reference))
	}
	content, err := s.read(at, to.name)
	if err != nil {
		return "", nil, err
	}
	name := path.Join(dataDir, to.name)
	s.files[name] = content
	return name, content, nil
}

// inline is the text of a patch or configuration that stands in a kustomization, without anchors.
func (s *scan) inline(at site, field, text string) (string, []document, error) {
	name := fmt.Sprintf("%s:%d: %s", at.file, at.lines(text), field)
	documents, err := s.parse(name, []byte(text))
	if err != nil {
		return "", nil, err
	}
	if len(documents) == 0 {
		return "", nil, located(name, 0, "the text is empty")
	}
	content, err := encodeAll(documents)
	if err != nil {
		return "", nil, located(name, 0, "%w", err)
	}
	return string(content), documents, nil
}

package docs_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```$")
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	mention   = regexp.MustCompile(`[\w./-]+\.md\b`)
	// dropped is what an anchor has nothing of.
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// Each link in the documents leads to a file of the repository and, if it names one, to a heading there. A document that is
// only named is there too.
func TestLinks(t *testing.T) {
	found := 0
	for _, document := range documents(t) {
		text := codeBlock.ReplaceAllString(read(t, document), "")
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			target, err := url.Parse(match[1])
			if err != nil {
				t.Errorf("%s: %v", document, err)
				continue
			}
			if target.IsAbs() {
				continue
			}
			found++
			if err := leads(t, document, target); err != nil {
				t.Errorf("%s: link to %s: %v", document, match[1], err)
			}
		}
		for _, name := range mention.FindAllString(link.ReplaceAllString(text, ""), -1) {
			if !exists(filepath.Join(filepath.Dir(document), name)) && !exists(filepath.Join("..", name)) {
				t.Errorf("%s names %s, which does not exist", document, name)
			}
		}
	}
	if found == 0 {
		t.Error("there are no links")
	}
}

// documents are the paths of all documents for people, but for templates.
func documents(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"*.md", "designs/*.md", "../*.md", "../charts/stageset/README.md"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %d documents, %v", pattern, len(paths), err)
		}
		found = append(found, paths...)
	}
	return found
}

// leads says what is wrong with a link in a document.
func leads(t *testing.T, document string, target *url.URL) error {
	t.Helper()
	path := document
	if target.Path != "" {
		path = filepath.Join(filepath.Dir(document), target.Path)
	}
	if !exists(path) {
		return fmt.Errorf("%s does not exist", path)
	}
	if target.Fragment == "" {
		return nil
	}
	anchors := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(read(t, path), ""), -1) {
		title := dropped.ReplaceAllString(strings.ToLower(match[1]), "")
		anchors[strings.ReplaceAll(title, " ", "-")] = true
	}
	if !anchors[target.Fragment] {
		return fmt.Errorf("%s has no such heading", path)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Package kubeconfig reads kubeconfigs that tenants wrote. What is in one decides where the reconciler connects to and what
// it sends there, so whatever is not known to be harmless is refused, by name. It is pure: it never reads a file, runs a
// program or connects, and no error of it quotes what it reads.
package kubeconfig

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// maxSize is how long a kubeconfig may be, in bytes. One with a dozen clusters has a tenth of it.
const maxSize = 256 << 10

// Options say what is admitted that is refused by default.
type Options struct {
	// InsecureTLS admits insecure-skip-tls-verify.
	InsecureTLS bool
}

// The keys of a Secret that are tried when a reference names none.
var defaultKeys = []string{"value", "value.yaml"}

// Select is the kubeconfig among the entries of a Secret: the one of the key, or, if that is empty, of "value" or else
// "value.yaml". An error names the keys that there are.
func Select(entries map[string][]byte, key string) ([]byte, error) {
	tried := defaultKeys
	if key != "" {
		tried = []string{key}
	}
	for _, key := range tried {
		if content, found := entries[key]; found {
			return content, nil
		}
	}
	there := "it has no keys at all"
	if len(entries) > 0 {
		there = "it has " + strings.Join(slices.Sorted(maps.Keys(entries)), ", ")
	}
	return nil, fmt.Errorf("there is no key %s: %s", strings.Join(tried, " or "), there)
}

// Parse reads a kubeconfig: what its current context leads to. An error names every field of the file that is refused or
// missing, also of users and clusters that the current context does not name.
func Parse(content []byte, options Options) (Access, error) {
	fields, err := decode(content)
	if err != nil {
		return Access{}, err
	}
	if len(fields) == 0 {
		return Access{}, errors.New("it is empty")
	}
	file := &reader{options: options}
	root := file.vet(part{fields: fields}, fileRules)
	current := file.current(root)
	access := Access{}
	file.cluster(current.cluster, &access)
	file.user(current.user, &access)
	if len(file.problems) > 0 {
		return Access{}, errors.New(strings.Join(file.problems, "; "))
	}
	return access, nil
}

// decode reads the YAML, unless it would take more memory than its length tells.
func decode(content []byte) (map[string]any, error) {
	if len(content) > maxSize {
		return nil, fmt.Errorf("it has %d bytes, of which %d are the most", len(content), maxSize)
	}
	var document yamlv3.Node // leaves aliases as they are
	if err := yamlv3.Unmarshal(content, &document); err != nil {
		return nil, unreadable(err)
	}
	if line := anchored(&document); line > 0 {
		return nil, fmt.Errorf("line %d has an anchor or an alias: write out what it stands for", line)
	}
	var fields map[string]any
	if err := yaml.UnmarshalStrict(content, &fields); err != nil {
		return nil, unreadable(err)
	}
	return fields, nil
}

// anchored is the line of the first anchor or alias; 0 if there is none. Every alias is as long as what it stands for once it
// is read, so that a few of them fill any memory.
func anchored(node *yamlv3.Node) int {
	if node.Anchor != "" || node.Kind == yamlv3.AliasNode {
		return node.Line
	}
	for _, child := range node.Content {
		if line := anchored(child); line > 0 {
			return line
		}
	}
	return 0
}

var lineNumber = regexp.MustCompile(`line [0-9]+`)

// unreadable says where the YAML is wrong, to a line: the parser counts from where it began to read what is wrong. Its own words
// may quote the file.
func unreadable(err error) error {
	if line := lineNumber.FindString(err.Error()); line != "" {
		return fmt.Errorf("it is no YAML of a kubeconfig: see around %s", line)
	}
	return errors.New("it is no YAML of a kubeconfig")
}

// context is what the current context is made of.
type context struct{ cluster, user part }

// current vets the lists of the file and finds what current-context names in them.
func (r *reader) current(root part) context {
	clusters := r.list(root, "clusters", "cluster", clusterRules)
	users := r.list(root, "users", "user", userRules)
	contexts := r.list(root, "contexts", "context", contextRules)
	if len(r.problems) > 0 {
		return context{} // what is missing besides would only distract
	}
	chosen := r.pick(contexts, root, "current-context")
	return context{cluster: r.pick(clusters, chosen, "cluster"), user: r.pick(users, chosen, "user")}
}

// pick is the item of a list that a field names.
func (r *reader) pick(items map[string]part, by part, field string) part {
	if by.fields == nil {
		return part{} // a problem already
	}
	name := r.text(by, field)
	item, found := items[name]
	switch {
	case name == "":
		r.problem(by, field, "is not set")
	case !found:
		r.problem(by, field, "names nothing that there is")
	}
	return item
}

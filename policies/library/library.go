// Package library holds policies that cluster admins ask for, as examples to copy: none of them is part of an installation.
// Each is a StageSetPolicy with its tests. The package never compiles or evaluates them itself.
package library

import (
	"embed"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/v1alpha1"
)

//go:embed *.yaml
var files embed.FS

// Policies are all policies of the library, sorted by name.
func Policies() ([]v1alpha1.StageSetPolicy, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	list := make([]v1alpha1.StageSetPolicy, len(entries))
	for i, entry := range entries {
		text, err := files.ReadFile(entry.Name())
		if err != nil {
			return nil, err
		}
		if err := yaml.UnmarshalStrict(text, &list[i]); err != nil {
			return nil, fmt.Errorf("policy %s: %w", entry.Name(), err)
		}
	}
	return list, nil
}

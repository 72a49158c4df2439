package build

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// apiType is a type in a file of crds, as kustomize reads it.
type apiType struct{ Schema spec.Schema }

// checkTypes refuses types that refer to themselves: kustomize follows the references of each type to their end, and the
// process with it.
func checkTypes(d document) error {
	content, err := encode(d.value)
	if err != nil {
		return err
	}
	var all map[string]apiType
	if err := json.Unmarshal(content, &all); err != nil {
		return errors.New("these are no OpenAPI definitions")
	}
	steps := 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := follow(all, name, 0, &steps); err != nil {
			return err
		}
	}
	return nil
}

// follow goes where kustomize goes from the type of that name.
func follow(all map[string]apiType, name string, depth int, steps *int) error {
	const maxDepth, maxSteps = 64, 10_000
	if *steps++; depth > maxDepth || *steps > maxSteps {
		return fmt.Errorf("type %q refers to itself, or to too many others", shorten(name))
	}
	for _, property := range all[name].Schema.Properties {
		if property.Ref.GetURL() != nil {
			if err := follow(all, property.Ref.String(), depth+1, steps); err != nil {
				return err
			}
		}
	}
	return nil
}

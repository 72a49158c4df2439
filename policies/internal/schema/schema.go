// Package schema is the StageSet as the API server publishes it, built from the CustomResourceDefinition that the product
// ships, so that expressions are checked and defaults are merged the same way with and without a cluster. It never reads a
// schema from a cluster.
package schema

import (
	"fmt"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/crds"
	v1 "github.com/stageset/stageset/api/v1"
)

// StageSet is the name of the schema of StageSets among Schemas.
const StageSet = "wtf.metio.stages.v1.StageSet"

const file = "stages.metio.wtf_stagesets.yaml"

// Schemas are the OpenAPI v3 schemas of StageSet and of what it refers to, by name. The result is shared: it must not be
// changed. It is built when it is first asked for, which takes some 20 ms.
var Schemas = sync.OnceValues(func() (map[string]*spec.Schema, error) {
	text, err := crds.FS.ReadFile(file)
	if err != nil {
		return nil, err
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, definition); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	published, err := builder.BuildOpenAPIV3(definition, v1.GroupVersion.Version, builder.Options{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if published.Components == nil || published.Components.Schemas[StageSet] == nil {
		return nil, fmt.Errorf("%s: has no schema %s", file, StageSet)
	}
	return published.Components.Schemas, nil
})

// Converter converts StageSets to values that can be merged field by field, as server-side apply does. It is built when it
// is first asked for, and safe for concurrent use.
var Converter = sync.OnceValues(func() (managedfields.TypeConverter, error) {
	schemas, err := Schemas()
	if err != nil {
		return nil, err
	}
	return managedfields.NewTypeConverter(schemas, false)
})

// HasField tells whether path, from the root of a StageSet, leads to a field, or into what has fields of any name.
func HasField(path []string) (bool, error) {
	schemas, err := Schemas()
	if err != nil {
		return false, err
	}
	at := schemas[StageSet]
	for _, name := range path {
		at = resolve(schemas, at)
		if at.AdditionalProperties != nil || at.Type.Contains("array") {
			return true, nil
		}
		field, ok := at.Properties[name]
		if !ok {
			return false, nil
		}
		at = &field
	}
	return true, nil
}

// resolve is the schema that s refers to, or s itself.
func resolve(schemas map[string]*spec.Schema, s *spec.Schema) *spec.Schema {
	if len(s.AllOf) == 1 {
		s = &s.AllOf[0]
	}
	if found := schemas[strings.TrimPrefix(s.Ref.String(), "#/components/schemas/")]; found != nil {
		return found
	}
	return s
}

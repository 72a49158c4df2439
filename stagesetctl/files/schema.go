package files

import (
	"fmt"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/crds"
)

// definition is what the API server holds a StageSetPolicy against.
type definition struct {
	validator  validation.SchemaValidator
	structural *schema.Structural
}

const policyDefinition = "stages.metio.wtf_stagesetpolicies.yaml"

var policySchema = sync.OnceValues(func() (definition, error) {
	text, err := crds.FS.ReadFile(policyDefinition)
	if err != nil {
		return definition{}, err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		return definition{}, fmt.Errorf("%s: %w", policyDefinition, err)
	}
	var props apiextensions.JSONSchemaProps
	stored := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(stored, &props, nil); err != nil {
		return definition{}, fmt.Errorf("%s: %w", policyDefinition, err)
	}
	validator, _, err := validation.NewSchemaValidator(&props)
	if err != nil {
		return definition{}, fmt.Errorf("%s: %w", policyDefinition, err)
	}
	structural, err := schema.NewStructural(&props)
	if err != nil {
		return definition{}, fmt.Errorf("%s: %w", policyDefinition, err)
	}
	return definition{validator: validator, structural: structural}, nil
})

// validate is everything for which the API server would not store document, whatever its expressions say.
func validate(document Document) (Problems, error) {
	policy, err := policySchema()
	if err != nil {
		return nil, err
	}
	wrong := validation.ValidateCustomResource(nil, document.Fields, policy.validator)
	wrong = append(wrong, listtype.ValidateListSetsAndMaps(nil, policy.structural, document.Fields)...)
	var problems Problems
	for _, err := range wrong {
		path := strings.TrimPrefix(err.Field, "<nil>.")
		problems = append(problems, document.At(path, path+": "+detail(path, err)))
	}
	return problems, nil
}

// detail says what is wrong on one line, and repeats no value that is long.
func detail(path string, err *field.Error) string {
	const longest = 200
	text := strings.Join(strings.Fields(err.ErrorBody()), " ")
	if len(text) > longest {
		return fmt.Sprintf("%s: %s", err.Type, err.Detail)
	}
	return strings.ReplaceAll(text, path+" in body ", "")
}

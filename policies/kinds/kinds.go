// Package kinds does to StageSets and StageSetPolicies what the API server does besides policies: it finds fields that they
// do not have, fills in the defaults of the schema, and finds what is not stored. It knows the CustomResourceDefinitions
// that the product ships, and never asks a cluster.
package kinds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/crds"
)

// Kind is a kind of the product as the API server serves it. It is immutable and safe for concurrent use.
type Kind struct {
	structural *schema.Structural
	validator  validation.SchemaValidator
	namespaced bool
}

// The kinds that policies are about, and that they are. Each is built when it is first asked for; the error is one of the
// build, and not of its caller.
var (
	StageSet       = sync.OnceValues(func() (*Kind, error) { return load("stages.metio.wtf_stagesets.yaml") })
	StageSetPolicy = sync.OnceValues(func() (*Kind, error) { return load("stages.metio.wtf_stagesetpolicies.yaml") })
)

func load(file string) (*Kind, error) {
	text, err := crds.FS.ReadFile(file)
	if err != nil {
		return nil, err
	}
	kind, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return kind, nil
}

func parse(text []byte) (*Kind, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		return nil, err
	}
	if len(crd.Spec.Versions) != 1 {
		return nil, errors.New("has not one version: which is served, and which is stored, is not known here")
	}
	var props apiextensions.JSONSchemaProps
	stored := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(stored, &props, nil); err != nil {
		return nil, err
	}
	validator, _, err := validation.NewSchemaValidator(&props)
	if err != nil {
		return nil, err
	}
	structural, err := schema.NewStructural(&props)
	if err != nil {
		return nil, err
	}
	return &Kind{
		structural: structural, validator: validator, namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
	}, nil
}

// Prune removes the fields that objects of the kind do not have from fields, and returns their paths, such as
// spec.stages[0].nmae. The API server refuses an object with such fields if it is asked to, as kubectl asks it, and removes
// them otherwise.
func (k *Kind) Prune(fields map[string]any) []string {
	metadata, found, unknown, err := objectmeta.GetObjectMetaWithOptions(fields, objectmeta.ObjectMetaOptions{
		ReturnUnknownFieldPaths: true,
	})
	if found && err == nil { // what is malformed is found by Validate
		err = objectmeta.SetObjectMeta(fields, metadata)
	}
	if err != nil {
		unknown = nil
	}
	return append(unknown, pruning.PruneWithOptions(fields, k.structural, true, schema.UnknownFieldPathOptions{
		TrackUnknownFieldPaths: true,
	})...)
}

// Default fills in the defaults of the schema: as the API server does when an object arrives, after each change at
// admission, and when it is read from the storage.
func (k *Kind) Default(fields map[string]any) {
	defaulting.Default(fields, k.structural)
	defaulting.PruneNonNullableNullsWithoutDefaults(fields, k.structural)
}

// Validate is everything for which the API server would not store fields, before it asks a validating policy. The errors are
// sorted by their paths, which are those of the object, without a leading dot.
func (k *Kind) Validate(ctx context.Context, fields map[string]any) field.ErrorList {
	var found field.ErrorList
	metadata, ok, err := objectmeta.GetObjectMeta(fields, false)
	if !ok {
		metadata = &metav1.ObjectMeta{}
	}
	if metadata != nil && metadata.Name == "" && metadata.GenerateName != "" {
		metadata.Name = metadata.GenerateName + "aaaaa" // as the API server makes one up
	}
	if !k.namespaced && metadata != nil {
		metadata.Namespace = "" // which the API server ignores
	}
	if err != nil {
		found = append(found, field.Invalid(field.NewPath("metadata"), field.OmitValueType{}, err.Error()))
	} else {
		found = append(found, apivalidation.ValidateObjectMeta(
			metadata, k.namespaced, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))...)
	}
	found = append(found, validation.ValidateCustomResource(nil, fields, k.validator)...)
	found = append(found, objectmeta.Validate(ctx, nil, fields, k.structural, false)...)
	found = append(found, listtype.ValidateListSetsAndMaps(nil, k.structural, fields)...)
	for _, one := range found {
		one.Field = strings.TrimPrefix(one.Field, "<nil>.")
	}
	slices.SortFunc(found, func(a, b *field.Error) int {
		return cmp.Or(strings.Compare(a.Field, b.Field), strings.Compare(a.Error(), b.Error()))
	})
	return found
}

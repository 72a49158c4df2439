package celenv

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// The variables of an expression.
const (
	varObject          = plugincel.ObjectVarName
	varOldObject       = plugincel.OldObjectVarName
	varParams          = plugincel.ParamsVarName
	varRequest         = plugincel.RequestVarName
	varNamespace       = plugincel.NamespaceVarName
	varAuthorizer      = plugincel.AuthorizerVarName
	varRequestResource = plugincel.RequestResourceAuthorizerVarName
	varVariables       = plugincel.VariableVarName
	varTenant          = "tenant"
	varStageSet        = "stageSet"
	varStage           = "stage"
	varSource          = "source"
	varTarget          = "target"
	varMetadata        = "metadata"
	varSpec            = "spec"
	varStatus          = "status"
)

// Subject is what expressions are about: it decides which variables they see.
type Subject int

const (
	// StageSet is for the writing of a StageSet: the variables of ValidatingAdmissionPolicy.
	StageSet Subject = iota
	// Source is for the source of a stage: source, stageSet and stage.
	Source
	// Manifest is for a rendered object: object, source, stageSet, stage and target.
	Manifest
	// Live is for an object as it is in a cluster: object, and its fields metadata, spec and status.
	Live
)

// Text says where the text of an expression comes from. It is what Kubernetes keeps its environments apart by: text that is
// about to be stored must also compile one minor version back, stored text must compile for ever.
type Text int

const (
	// Stored text has been accepted before, by this or by an earlier version.
	Stored Text = iota
	// New text is about to be stored.
	New
)

func (t Text) envType() environment.Type {
	if t == New {
		return environment.NewExpressions
	}
	return environment.StoredExpressions
}

// always is the version that declarations are introduced at which every version has.
var always = version.MajorMinor(1, 0)

// patchTypes are the types that the expression of a mutation constructs.
var patchTypes = environment.VersionedOptions{
	IntroducedVersion: always,
	EnvOptions: []cel.EnvOption{
		common.ResolverEnvOption(&mutation.DynamicTypeResolver{}),
		environment.UnversionedLib(library.JSONPatch),
	},
}

// dialect is a pair of environments with the same variables: that of conditions, rules and messages, and that of mutations.
type dialect struct {
	plain, mutating *environment.EnvSet
	// unmetered is what programs come from that count nothing; nil where nothing is evaluated.
	unmetered *cel.Env
}

// untyped are the dialects in which StageSets and objects are dynamic, as they are when an expression is evaluated. Each is
// built once: it is immutable, and building it is what makes a compiler expensive.
var untyped = map[Subject]func() (dialect, error){
	StageSet: once(func() (dialect, error) { return newDialect(StageSet, anything) }),
	Source:   once(func() (dialect, error) { return newDialect(Source, anything) }),
	Manifest: once(func() (dialect, error) { return newDialect(Manifest, anything) }),
	Live:     once(newLiveDialect),
}

func once(declare func() (dialect, error)) func() (dialect, error) {
	return sync.OnceValues(func() (dialect, error) {
		declared, err := declare()
		if err == nil {
			declared.unmetered, err = newUnmetered(declared.plain)
		}
		return declared, err
	})
}

// stageSetTypes are the types of a StageSet and of one of its stages, and the declarations that they need.
type stageSetTypes struct {
	stageSet, stage *cel.Type
	declarations    []*apiservercel.DeclType
}

var anything = stageSetTypes{stageSet: cel.DynType, stage: cel.DynType}

// newDialect declares the variables of subject.
func newDialect(subject Subject, known stageSetTypes) (dialect, error) {
	options := environment.VersionedOptions{IntroducedVersion: always, DeclTypes: known.declarations}
	declare := func(name string, of *cel.Type) {
		options.EnvOptions = append(options.EnvOptions, cel.Variable(name, of))
	}
	object := func(name string, of *apiservercel.DeclType) {
		declare(name, of.CelType())
		options.DeclTypes = append(slices.Clip(options.DeclTypes), of)
	}
	declare(varParams, cel.DynType)
	declare(varTenant, cel.BoolType)
	object(varNamespace, plugincel.BuildNamespaceType())
	if subject == StageSet {
		declare(varObject, known.stageSet)
		declare(varOldObject, known.stageSet)
		declare(varAuthorizer, library.AuthorizerType)
		declare(varRequestResource, library.ResourceCheckType)
		object(varRequest, plugincel.BuildRequestType())
	} else {
		declare(varStageSet, known.stageSet)
		declare(varStage, known.stage)
		object(varSource, sourceType())
	}
	if subject == Manifest {
		declare(varObject, cel.DynType)
		object(varTarget, targetType())
	}
	plain, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(options)
	if err != nil {
		return dialect{}, fmt.Errorf("declaring the variables of policies: %w", err)
	}
	if subject != StageSet {
		return dialect{plain: plain, mutating: plain}, nil
	}
	mutating, err := plain.Extend(patchTypes)
	if err != nil {
		return dialect{}, fmt.Errorf("declaring the types of mutations: %w", err)
	}
	return dialect{plain: plain, mutating: mutating}, nil
}

// newLiveDialect declares the variables of Live: an object, whose kind may have any fields.
func newLiveDialect() (dialect, error) {
	options := environment.VersionedOptions{IntroducedVersion: always}
	for _, name := range []string{varObject, varMetadata, varSpec, varStatus} {
		options.EnvOptions = append(options.EnvOptions, cel.Variable(name, cel.DynType))
	}
	plain, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(options)
	if err != nil {
		return dialect{}, fmt.Errorf("declaring the variables of objects: %w", err)
	}
	return dialect{plain: plain, mutating: plain}, nil
}

func sourceType() *apiservercel.DeclType {
	return objectType("stageset.Source", map[string]*apiservercel.DeclType{
		"apiVersion": apiservercel.StringType, "kind": apiservercel.StringType,
		"namespace": apiservercel.StringType, "name": apiservercel.StringType,
		"url": apiservercel.StringType, "revision": apiservercel.StringType, "digest": apiservercel.StringType,
		"verified": apiservercel.BoolType,
	})
}

func targetType() *apiservercel.DeclType {
	return objectType("stageset.Target", map[string]*apiservercel.DeclType{
		"remote": apiservercel.BoolType, "server": apiservercel.StringType, "serviceAccountName": apiservercel.StringType,
	})
}

func objectType(name string, fields map[string]*apiservercel.DeclType) *apiservercel.DeclType {
	declared := make(map[string]*apiservercel.DeclField, len(fields))
	for field, of := range fields {
		declared[field] = apiservercel.NewDeclField(field, of, true, nil, nil)
	}
	return apiservercel.NewObjectType(name, declared)
}

// refPrefix is what a reference to a schema starts with in OpenAPI v3.
const refPrefix = "#/components/schemas/"

// newTypedDialect is a dialect in which StageSets have the type that the schema ref of schemas describes.
func newTypedDialect(subject Subject, schemas map[string]*spec.Schema, ref string) (dialect, error) {
	schema, err := resolver.PopulateRefs(func(ref string) (*spec.Schema, bool) {
		found, ok := schemas[strings.TrimPrefix(ref, refPrefix)]
		return found, ok
	}, ref)
	if err != nil {
		return dialect{}, fmt.Errorf("resolving the schema %s: %w", ref, err)
	}
	stageSet := common.SchemaDeclType(&openapi.Schema{Schema: schema}, true)
	if stageSet == nil {
		return dialect{}, fmt.Errorf("the schema %s is not that of an object", ref)
	}
	stageSet = stageSet.MaybeAssignTypeName("StageSet")
	known := stageSetTypes{stageSet: stageSet.CelType(), stage: cel.DynType, declarations: []*apiservercel.DeclType{stageSet}}
	if stage := stageType(stageSet); stage != nil {
		known.stage = stage.CelType()
	}
	return newDialect(subject, known)
}

// stageType is the type of the items of spec.stages; nil if there are none.
func stageType(stageSet *apiservercel.DeclType) *apiservercel.DeclType {
	at := stageSet
	for _, name := range []string{"spec", "stages"} {
		field, ok := at.Fields[name]
		if !ok {
			return nil
		}
		at = field.Type
	}
	return at.ElemType
}

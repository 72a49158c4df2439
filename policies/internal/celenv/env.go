package celenv

import (
	"fmt"
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
}

// untyped is the dialect in which object and oldObject are dynamic, as they are when an expression is evaluated. It is built
// once: it is immutable, and building it is what makes a compiler expensive.
var untyped = sync.OnceValues(func() (dialect, error) { return newDialect(cel.DynType) })

// newDialect declares the variables; object is the type of object and oldObject, and types are the declarations it needs.
func newDialect(object *cel.Type, types ...*apiservercel.DeclType) (dialect, error) {
	request, namespace := plugincel.BuildRequestType(), plugincel.BuildNamespaceType()
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	plain, err := base.Extend(environment.VersionedOptions{
		IntroducedVersion: always,
		EnvOptions: []cel.EnvOption{
			cel.Variable(varObject, object),
			cel.Variable(varOldObject, object),
			cel.Variable(varParams, cel.DynType),
			cel.Variable(varRequest, request.CelType()),
			cel.Variable(varNamespace, namespace.CelType()),
			cel.Variable(varAuthorizer, library.AuthorizerType),
			cel.Variable(varRequestResource, library.ResourceCheckType),
			cel.Variable(varTenant, cel.BoolType),
		},
		DeclTypes: append([]*apiservercel.DeclType{request, namespace}, types...),
	})
	if err != nil {
		return dialect{}, fmt.Errorf("declaring the variables of policies: %w", err)
	}
	mutating, err := plain.Extend(patchTypes)
	if err != nil {
		return dialect{}, fmt.Errorf("declaring the types of mutations: %w", err)
	}
	return dialect{plain: plain, mutating: mutating}, nil
}

// refPrefix is what a reference to a schema starts with in OpenAPI v3.
const refPrefix = "#/components/schemas/"

// newTypedDialect is a dialect in which object and oldObject have the type that the schema ref of schemas describes.
func newTypedDialect(schemas map[string]*spec.Schema, ref string) (dialect, error) {
	schema, err := resolver.PopulateRefs(func(ref string) (*spec.Schema, bool) {
		found, ok := schemas[strings.TrimPrefix(ref, refPrefix)]
		return found, ok
	}, ref)
	if err != nil {
		return dialect{}, fmt.Errorf("resolving the schema %s: %w", ref, err)
	}
	object := common.SchemaDeclType(&openapi.Schema{Schema: schema}, true)
	if object == nil {
		return dialect{}, fmt.Errorf("the schema %s is not that of an object", ref)
	}
	object = object.MaybeAssignTypeName("StageSet")
	return newDialect(object.CelType(), object)
}

package policies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stageset/stageset/api/v1alpha1"
)

// maxParams is with how many objects a policy is evaluated at most: each costs as much as a policy.
const maxParams = 64

// DefaultParamResources are the kinds that can be parameters where the installation does not say.
var DefaultParamResources = []v1alpha1.ParamKind{{APIVersion: "v1", Kind: "ConfigMap"}}

// ParamQuery says which objects are the parameters of a policy.
type ParamQuery struct {
	// Policy is the name of the policy.
	Policy string
	// Kind is the kind of the objects.
	Kind schema.GroupVersionKind
	// Namespace is where the objects are, if their kind has namespaces: that of paramRef, or else that of the StageSet.
	Namespace string
	// Name is the name of the object; empty if Selector selects.
	Name string
	// Selector selects objects; nil if there is a Name.
	Selector labels.Selector
}

// ParamLookup finds the parameters of policies. It is asked for each evaluation of a policy with parameters.
type ParamLookup interface {
	// Params are the objects that query selects. None is not an error; an error is why it cannot be told which there are. The
	// objects are not changed.
	Params(ctx context.Context, query ParamQuery) ([]*unstructured.Unstructured, error)
}

// Param is an object that a policy was evaluated with, in the version that it had then.
type Param struct {
	// Policy is the name of the policy.
	Policy string
	// Kind, Namespace and Name tell the object; Namespace is empty if its kind has none.
	Kind, Namespace, Name string
	// ResourceVersion tells its versions apart.
	ResourceVersion string
}

// String is such as "few-stages: ConfigMap team-a/limits, resourceVersion 7".
func (p Param) String() string {
	name := p.Name
	if p.Namespace != "" {
		name = p.Namespace + "/" + p.Name
	}
	return fmt.Sprintf("%s: %s %s, resourceVersion %s", p.Policy, p.Kind, name, p.ResourceVersion)
}

// paramsOf are the objects that a policy is evaluated with.
func paramsOf(policy string, objects []*unstructured.Unstructured) []Param {
	all := make([]Param, 0, len(objects))
	for _, object := range objects {
		all = append(all, Param{
			Policy: policy, Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName(),
			ResourceVersion: object.GetResourceVersion(),
		})
	}
	return all
}

// params are where a policy has its parameters from. The zero params are null.
type params struct {
	fixed map[string]any
	kind  schema.GroupVersionKind
	// ref is nil if the policy refers to none.
	ref      *v1alpha1.ParamRef
	selector labels.Selector
}

// newParams are the params that spec asks for. What can be parameters is allowed; DefaultParamResources if it is nil.
func newParams(spec *v1alpha1.StageSetPolicySpec, allowed []v1alpha1.ParamKind, report func(string, error)) params {
	kind, ref := spec.ParamKind, spec.ParamRef
	if kind == nil && ref == nil {
		return params{}
	}
	if kind == nil || ref == nil {
		report("paramKind", errors.New("paramKind and paramRef are set together"))
		return params{}
	}
	if err := allows(kind, allowed); err != nil {
		report("paramKind", err)
	}
	found := params{kind: schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind), ref: ref}
	if (ref.Name == "") == (ref.Selector == nil) {
		report("paramRef", errors.New("sets not exactly one of name and selector"))
	}
	switch ref.ParameterNotFoundAction {
	case "", v1alpha1.ParameterNotFoundAllow, v1alpha1.ParameterNotFoundDeny:
	default:
		report("paramRef.parameterNotFoundAction", fmt.Errorf("%q is not Allow or Deny", ref.ParameterNotFoundAction))
	}
	if ref.Selector != nil {
		selector, err := metav1.LabelSelectorAsSelector(ref.Selector)
		if err != nil {
			report("paramRef.selector", err)
		}
		found.selector = selector
	}
	return found
}

// allows is nil if objects of the kind can be parameters. What an expression reads, its message can show: never a Secret.
func allows(kind *v1alpha1.ParamKind, allowed []v1alpha1.ParamKind) error {
	parsed := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	if parsed.Group == "" && parsed.Kind == "Secret" {
		return errors.New("is Secret, which is never a parameter: every message could show it")
	}
	if allowed == nil {
		allowed = DefaultParamResources
	}
	if !slices.Contains(allowed, *kind) {
		names := make([]string, 0, len(allowed))
		for _, other := range allowed {
			names = append(names, other.Kind+" of "+other.APIVersion)
		}
		return fmt.Errorf("is %s of %s, which this installation does not allow; it allows %s (policies.paramResources)",
			kind.Kind, kind.APIVersion, strings.Join(names, ", "))
	}
	return nil
}

// find are the parameters for a StageSet of namespace, null if the policy has none, and the objects that they are. There are
// none, and no error, if the policy is not to be evaluated without.
func (p params) find(ctx context.Context, lookup ParamLookup, policy, namespace string) (
	[]map[string]any, []Param, error,
) {
	if p.fixed != nil || p.ref == nil {
		return []map[string]any{p.fixed}, nil, nil
	}
	if lookup == nil {
		return nil, nil, errors.New("cannot be evaluated: there is nowhere to look for parameters here")
	}
	query := ParamQuery{Policy: policy, Kind: p.kind, Namespace: p.ref.Namespace, Name: p.ref.Name, Selector: p.selector}
	if query.Namespace == "" {
		query.Namespace = namespace
	}
	objects, err := lookup.Params(ctx, query)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("cannot be evaluated: %s: %w", query, err)
	case len(objects) > maxParams:
		return nil, nil, fmt.Errorf("cannot be evaluated: %s: there are %d, more than %d", query, len(objects), maxParams)
	case len(objects) == 0 && p.ref.ParameterNotFoundAction != v1alpha1.ParameterNotFoundAllow:
		return nil, nil, fmt.Errorf("cannot be evaluated: %s: there is none (parameterNotFoundAction Deny)", query)
	}
	values := make([]map[string]any, 0, len(objects))
	for _, object := range objects {
		values = append(values, object.Object)
	}
	return values, paramsOf(policy, objects), nil
}

// String is such as "params ConfigMap team-a/limits".
func (q ParamQuery) String() string {
	which := q.Name
	if q.Selector != nil {
		which = fmt.Sprintf("selected by %q", q.Selector)
	}
	return fmt.Sprintf("params %s %s/%s", q.Kind.Kind, q.Namespace, which)
}

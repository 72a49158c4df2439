package files

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies/kinds"
)

// Policy is a StageSetPolicy and where it is written.
type Policy struct {
	Document
	// Parsed is the policy.
	Parsed v1alpha1.StageSetPolicy
}

// Policies are the StageSetPolicies among documents; other objects are left out. The error is Problems: each field that a
// StageSetPolicy does not have, each value that the API server would not store, each name that is used twice, and each kind
// that the product does not have. What is returned are then the policies that nothing is wrong with.
func Policies(ctx context.Context, documents []Document) ([]Policy, error) {
	var found []Policy
	var problems Problems
	names := map[string]Document{}
	for _, document := range documents {
		if document.Kind() != v1alpha1.KindStageSetPolicy {
			problems = append(problems, document.Unserved()...)
			continue
		}
		policy, wrong, err := decode(ctx, document)
		if err != nil {
			return nil, err
		}
		name := document.Object().GetName()
		if first, taken := names[name]; taken && name != "" {
			wrong = append(wrong, document.At("metadata.name",
				fmt.Sprintf("policy %s is also in %s:%d", name, first.Path, first.Line)))
		}
		names[name] = document
		problems = append(problems, wrong...)
		if len(wrong) == 0 {
			found = append(found, policy)
		}
	}
	return found, problems.Sort().orNil()
}

// served are the kinds of the product, with their versions.
var served = map[string]schema.GroupVersion{
	"StageSet": v1.GroupVersion, "StageInventory": v1.GroupVersion, v1alpha1.KindStageSetPolicy: v1alpha1.GroupVersion,
}

// Unserved is what is wrong with a document that is of the product, but of a kind or a version that it does not have.
func (d Document) Unserved() Problems {
	group, _, _ := strings.Cut(d.APIVersion(), "/")
	version, known := served[d.Kind()]
	switch {
	case group != v1.GroupVersion.Group:
		return nil
	case !known:
		return Problems{d.At("kind", fmt.Sprintf("kind is %q, which %s does not have", d.Kind(), group))}
	case d.APIVersion() != version.String():
		return Problems{d.At("apiVersion", fmt.Sprintf("apiVersion is %q, not %s", d.APIVersion(), version))}
	default:
		return nil
	}
}

// decode is the policy that document is, without its status, and what is wrong with it.
func decode(ctx context.Context, document Document) (Policy, Problems, error) {
	policy := Policy{Document: document}
	if version := v1alpha1.GroupVersion.String(); document.APIVersion() != version {
		return policy, Problems{
			document.At("apiVersion", fmt.Sprintf("apiVersion is %q, not %s", document.APIVersion(), version)),
		}, nil
	}
	kind, err := kinds.StageSetPolicy()
	if err != nil {
		return policy, nil, err
	}
	problems := append(document.Unknown(kind, v1alpha1.KindStageSetPolicy),
		document.Invalid(ctx, kind, runtime.DeepCopyJSON(document.Fields))...)
	if len(problems) > 0 {
		return policy, problems, nil
	}
	written := maps.Clone(document.Fields)
	delete(written, "status")
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(written, &policy.Parsed)
	if err != nil {
		return policy, Problems{document.At("", err.Error())}, nil
	}
	return policy, nil, nil
}

// Object is document as an object of the cluster.
func (d Document) Object() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: runtime.DeepCopyJSON(d.Fields)}
}

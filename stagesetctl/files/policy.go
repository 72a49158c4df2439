package files

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/stageset/stageset/api/v1alpha1"
)

// Policy is a StageSetPolicy and where it is written.
type Policy struct {
	Document
	// Parsed is the policy.
	Parsed v1alpha1.StageSetPolicy
}

// Policies are the StageSetPolicies among documents; other objects are left out. The error is Problems: each field that a
// StageSetPolicy does not have, each value that the API server would not store, and each name that is used twice. What is
// returned are then the policies that nothing is wrong with.
func Policies(documents []Document) ([]Policy, error) {
	var found []Policy
	var problems Problems
	names := map[string]Document{}
	for _, document := range documents {
		if document.Kind() != v1alpha1.KindStageSetPolicy {
			continue
		}
		policy, wrong, err := decode(document)
		if err != nil {
			return nil, err
		}
		name := policy.Parsed.Name
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

// decode is the policy that document is, and what is wrong with it.
func decode(document Document) (Policy, Problems, error) {
	policy := Policy{Document: document}
	if version := v1alpha1.GroupVersion.String(); document.APIVersion() != version {
		return policy, Problems{
			document.At("apiVersion", fmt.Sprintf("apiVersion is %q, not %s", document.APIVersion(), version)),
		}, nil
	}
	problems, err := validate(document)
	if err != nil {
		return policy, nil, err
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(document.Fields, &policy.Parsed, true)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, err := range strict.Errors() {
			problems = append(problems, strictProblem(document, err.Error()))
		}
	} else if err != nil && len(problems) == 0 {
		problems = append(problems, document.At("", err.Error()))
	}
	return policy, problems, nil
}

var unknownField = regexp.MustCompile(`^unknown field "(.*)"$`)

func strictProblem(document Document, text string) Problem {
	if match := unknownField.FindStringSubmatch(text); match != nil {
		return document.At(match[1], match[1]+": a StageSetPolicy has no such field")
	}
	return document.At("", text)
}

// Object is document as an object of the cluster.
func (d Document) Object() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: runtime.DeepCopyJSON(d.Fields)}
}

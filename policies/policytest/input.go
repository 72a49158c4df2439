package policytest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/internal/schema"
	"github.com/stageset/stageset/policies/kinds"
)

// DefaultUser makes the request if nothing says who does.
const DefaultUser = "somebody"

// defaultNamespace is where the StageSet of a test is that does not say.
const defaultNamespace = "tenant"

// input is what a test asks.
func input(test *v1alpha1.PolicyTest) (policies.Input, error) {
	var in policies.Input
	if len(test.Objects) > 0 || test.StageSet != nil || test.Stage != "" || test.Source != nil || test.Target != nil {
		return in, errors.New("objects, stageSet, stage, source and target are for the targets Source and Manifest")
	}
	var err error
	if in.Namespace, err = namespace(v1alpha1.TargetStageSet, test); err != nil {
		return in, err
	}
	if in.Object, err = stageSet("object", test.Object, in.Namespace.Name); err != nil {
		return in, err
	}
	if in.OldObject, err = stageSet("oldObject", test.OldObject, in.Namespace.Name); err != nil {
		return in, err
	}
	in.Request = request(test, in)
	in.Authorizer = Authorizer(test.Permissions)
	return in, fits(in)
}

// fits tells whether the objects are those that the operation has.
func fits(in policies.Input) error {
	operation := in.Request.Operation
	needsObject, needsOld := operation != admissionv1.Delete, operation != admissionv1.Create
	switch {
	case needsObject != (in.Object != nil):
		return fmt.Errorf("object: a %s has %s", operation, oneOrNone(needsObject))
	case needsOld != (in.OldObject != nil):
		return fmt.Errorf("oldObject: a %s has %s", operation, oneOrNone(needsOld))
	default:
		return nil
	}
}

func oneOrNone(one bool) string {
	if one {
		return "one"
	}
	return "none"
}

// request is made by the user of the test, or by somebody.
func request(test *v1alpha1.PolicyTest, in policies.Input) *admissionv1.AdmissionRequest {
	name, operation := "", admissionv1.Create
	if in.OldObject != nil {
		name, operation = in.OldObject.GetName(), admissionv1.Update
	}
	if in.Object != nil {
		name = in.Object.GetName()
	}
	if test.Operation != "" {
		operation = admissionv1.Operation(test.Operation)
	}
	made := policies.NewRequest(operation, in.Namespace.Name, name)
	made.UserInfo.Username = DefaultUser
	if test.User != nil {
		made.UserInfo = *test.User
	}
	return made
}

// Authorizer allows what is among permissions, and nothing else.
func Authorizer(permissions []v1alpha1.Permission) policies.Authorizer {
	return policies.NewAuthorizer(func(_ context.Context, review *authorizationv1.SubjectAccessReview) error {
		asked := review.Spec.ResourceAttributes
		review.Status.Allowed = asked != nil && slices.ContainsFunc(permissions, func(p v1alpha1.Permission) bool {
			resource := asked.Resource
			if asked.Subresource != "" {
				resource += "/" + asked.Subresource
			}
			return p.Verb == asked.Verb && grants(p.APIGroup, asked.Group) && grants(p.Resource, resource) &&
				grants(p.Namespace, asked.Namespace) && grants(p.Name, asked.Name)
		})
		return nil
	})
}

func grants(part, asked string) bool { return part == "" || part == asked }

// namespace is the Namespace of a test, with the label that the API server gives every Namespace.
func namespace(target v1alpha1.Target, test *v1alpha1.PolicyTest) (*corev1.Namespace, error) {
	fields, err := decode("namespace", test.Namespace)
	if err != nil {
		return nil, err
	}
	made := &corev1.Namespace{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(fields, made, true); err != nil {
		return nil, fmt.Errorf("namespace: %w", err)
	}
	if made.Name == "" {
		made.Name = namespaceName(target, test)
	}
	if made.Labels == nil {
		made.Labels = map[string]string{}
	}
	made.Labels[corev1.LabelMetadataName] = made.Name
	return made, nil
}

// namespaceName is the name of the namespace of a test: that of its Namespace, or of one of its objects. What cannot be
// decoded is reported where it is used.
func namespaceName(target v1alpha1.Target, test *v1alpha1.PolicyTest) string {
	if fields, err := decode("namespace", test.Namespace); err == nil {
		if name, _, _ := unstructured.NestedString(fields, "metadata", "name"); name != "" {
			return name
		}
	}
	owners := []*runtime.RawExtension{test.Object, test.OldObject}
	if target != v1alpha1.TargetStageSet {
		owners = []*runtime.RawExtension{test.StageSet}
	}
	for _, raw := range owners {
		if fields, err := decode("object", raw); err == nil {
			if name, _, _ := unstructured.NestedString(fields, "metadata", "namespace"); name != "" {
				return name
			}
		}
	}
	return defaultNamespace
}

// stageSet is the StageSet raw in the namespace, or nil, with the defaults that the API server fills in before any policy sees
// it. It may lack what a stored one needs. A field that StageSets do not have is an error: a test with a misspelt field
// would pass for the wrong reason.
func stageSet(field string, raw *runtime.RawExtension, namespace string) (*unstructured.Unstructured, error) {
	fields, err := decode(field, raw)
	if err != nil || fields == nil {
		return nil, err
	}
	object := &unstructured.Unstructured{Object: fields}
	object.SetGroupVersionKind(v1.GroupVersion.WithKind("StageSet"))
	switch object.GetNamespace() {
	case "":
		object.SetNamespace(namespace)
	case namespace:
	default:
		return nil, fmt.Errorf("%s: metadata.namespace is %s, but the namespace is %s", field, object.GetNamespace(), namespace)
	}
	converter, err := schema.Converter()
	if err != nil {
		return nil, err
	}
	if _, err := converter.ObjectToTyped(object); err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return object, fillIn(object)
}

// fillIn fills in what the API server does; nothing if there is no object.
func fillIn(object *unstructured.Unstructured) error {
	if object == nil {
		return nil
	}
	kind, err := kinds.StageSet()
	if err != nil {
		return err
	}
	kind.Default(object.Object)
	return nil
}

// decode is the object raw; nil if there is none.
func decode(field string, raw *runtime.RawExtension) (map[string]any, error) {
	if raw == nil || len(raw.Raw) == 0 || string(raw.Raw) == "null" {
		return nil, nil
	}
	var fields map[string]any
	if err := utiljson.Unmarshal(raw.Raw, &fields); err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return fields, nil
}

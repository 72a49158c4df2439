package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/kinds"
	"github.com/stageset/stageset/policies/policytest"
	"github.com/stageset/stageset/stagesetctl/files"
)

// kindStageSet is the kind that most policies are about.
const kindStageSet = "StageSet"

// defaultNamespace is where an object is of which nothing says where it is.
const defaultNamespace = "default"

// isStageSet tells whether a document is a StageSet.
func isStageSet(d files.Document) bool {
	return d.Kind() == kindStageSet && d.APIVersion() == v1.GroupVersion.String()
}

// readStageSet is the only StageSet in the file that a flag names, as the API server has it; nil if the flag is not set.
func readStageSet(ctx context.Context, reader *files.Reader, flag, path string) (*unstructured.Unstructured, error) {
	if path == "" {
		return nil, nil
	}
	document, err := single(reader, flag, path)
	if err != nil {
		return nil, err
	}
	return storedStageSet(ctx, document)
}

// storedStageSet is the StageSet in d as the API server has it. The error is files.Problems if it would not store it.
func storedStageSet(ctx context.Context, d files.Document) (*unstructured.Unstructured, error) {
	if !isStageSet(d) {
		return nil, d.At("kind", "is not a StageSet of "+v1.GroupVersion.String())
	}
	object, problems, err := decodeStageSet(d)
	if err != nil {
		return nil, err
	}
	invalid, err := invalidStageSet(ctx, d, object)
	if err != nil {
		return nil, err
	}
	if problems = append(problems, invalid...); len(problems) > 0 {
		return nil, problems.Sort()
	}
	return object, nil
}

// decodeStageSet is the StageSet in d as the API server shows it to policies that fill in: with the defaults of its schema,
// and without fields that it does not have, which are the problems.
func decodeStageSet(d files.Document) (*unstructured.Unstructured, files.Problems, error) {
	kind, err := kinds.StageSet()
	if err != nil {
		return nil, nil, err
	}
	object := d.Object()
	problems := d.Unknown(kind, kindStageSet)
	kind.Prune(object.Object)
	kind.Default(object.Object)
	return object, problems, nil
}

// fillIn fills in the defaults of the schema, as the API server does again after policies have changed an object.
func fillIn(object *unstructured.Unstructured) error {
	kind, err := kinds.StageSet()
	if err != nil {
		return err
	}
	kind.Default(object.Object)
	return nil
}

// invalidStageSet is everything for which the API server would not store object, which was made of d.
func invalidStageSet(ctx context.Context, d files.Document, object *unstructured.Unstructured) (files.Problems, error) {
	kind, err := kinds.StageSet()
	if err != nil {
		return nil, err
	}
	if object.GetNamespace() == "" {
		object = object.DeepCopy()
		object.SetNamespace(defaultNamespace)
	}
	return d.Invalid(ctx, kind, object.Object), nil
}

// request is what writes the StageSet object, which was made of d. Without flags about that there is no request.
func (a *asked) request(d files.Document, object *unstructured.Unstructured) (policies.Input, error) {
	namespace, err := a.namespaceOf(object.GetNamespace())
	if err != nil {
		return policies.Input{}, d.At("metadata.namespace", err.Error())
	}
	object.SetNamespace(namespace.Name)
	in := policies.Input{Object: object, Namespace: namespace, Authorizer: a.authorizer}
	if !a.isRequest() {
		return in, nil
	}
	operation := admissionv1.Create
	switch {
	case a.old != nil && a.old.GetName() != object.GetName():
		return in, d.At("metadata.name",
			fmt.Sprintf("metadata.name is %s, and that of --old-object is %s", object.GetName(), a.old.GetName()))
	case a.old != nil && cmp.Or(a.old.GetNamespace(), namespace.Name) != namespace.Name:
		return in, d.At("metadata.namespace",
			fmt.Sprintf("metadata.namespace is %s, and that of --old-object is %s", namespace.Name, a.old.GetNamespace()))
	case a.old != nil:
		operation = admissionv1.Update
		in.OldObject = a.old.DeepCopy()
		in.OldObject.SetNamespace(namespace.Name)
	case a.operation == string(admissionv1.Delete):
		operation = admissionv1.Delete
		in.Object, in.OldObject = nil, object
	}
	in.Request = policies.NewRequest(operation, namespace.Name, object.GetName())
	in.Request.UserInfo.Username = cmp.Or(a.user, policytest.DefaultUser)
	in.Request.UserInfo.Groups = a.groups
	return in, nil
}

// namespaceOf is the Namespace of a StageSet: of the name that it says, or else of the one that the flags say.
func (a *asked) namespaceOf(said string) (*corev1.Namespace, error) {
	name := defaultNamespace
	switch {
	case said != "":
		name = said
	case a.namespace != "":
		name = a.namespace
	case len(a.namespaces) == 1:
		name = a.namespaces[0].Name
	}
	namespace := &corev1.Namespace{}
	if len(a.namespaces) > 0 {
		i := slices.IndexFunc(a.namespaces, func(n corev1.Namespace) bool { return n.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("is in namespace %s; --namespace-object has %s", name, namespaceNames(a.namespaces))
		}
		a.namespaces[i].DeepCopyInto(namespace)
	}
	namespace.Name = name
	if namespace.Labels == nil {
		namespace.Labels = map[string]string{}
	}
	namespace.Labels[corev1.LabelMetadataName] = name
	return namespace, nil
}

package app

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/stagesetctl/files"
)

// question is the flags that say how an object is written, and by whom.
type question struct {
	oldObject       string
	namespace       string
	namespaceObject string
	user            string
	groups          []string
	params          string
	policyConfig    string
}

func (q *question) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&q.oldObject, "old-object", "", "File with the object as it was: the request is an UPDATE then.")
	flags.StringVarP(&q.namespace, "namespace", "n", "",
		`Namespace of objects that do not say theirs. Defaults to "default".`)
	flags.StringVar(&q.namespaceObject, "namespace-object", "",
		"File with the Namespace, for policies that read its labels or annotations.")
	flags.StringVar(&q.user, "user", "",
		"Name of the user who makes the request. Without it and --old-object, a StageSet is evaluated as the reconciler does:"+
			" rules that ask who writes it, or how, rest.")
	flags.StringSliceVar(&q.groups, "group", nil, "Groups of the user who makes the request.")
	flags.StringVar(&q.params, "params", "", "File with the object that the policies read as params.")
	flags.StringVar(&q.policyConfig, "policy-config", "",
		"Policy config of the installation. Its platformNamespaces say where the variable tenant is false.")
}

// asked is a question that has been read.
type asked struct {
	oldObject *unstructured.Unstructured
	namespace *corev1.Namespace
	params    map[string]any
	config    policies.Config
	question  *question
}

func (q *question) read(reader *files.Reader) (asked, error) {
	result := asked{question: q}
	var err error
	if result.config, err = policies.LoadConfig(q.policyConfig); err != nil {
		return result, err
	}
	if q.params != "" {
		document, err := single(reader, "params", q.params)
		if err != nil {
			return result, err
		}
		if document.Kind() == "Secret" && document.APIVersion() == "v1" {
			return result, document.At("kind", "a Secret cannot be the parameter of a policy")
		}
		result.params = document.Fields
	}
	if q.oldObject != "" {
		document, err := single(reader, "old-object", q.oldObject)
		if err != nil {
			return result, err
		}
		result.oldObject = document.Object()
	}
	if q.namespaceObject != "" {
		document, err := single(reader, "namespace-object", q.namespaceObject)
		if err != nil {
			return result, err
		}
		result.namespace = &corev1.Namespace{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(
			document.Fields, result.namespace, true); err != nil {
			return result, document.At("", err.Error())
		}
	}
	return result, nil
}

// single is the only object in the file that a flag names.
func single(reader *files.Reader, flag, path string) (files.Document, error) {
	documents, err := reader.Read(path)
	if err != nil {
		return files.Document{}, fmt.Errorf("--%s: %w", flag, err)
	}
	if len(documents) != 1 {
		return files.Document{}, fmt.Errorf("--%s: %s has %d objects, not one", flag, path, len(documents))
	}
	return documents[0], nil
}

// options are those of a Set that has the policies called names.
func (a asked) options(names ...string) policies.Options {
	options := policies.Options{PlatformNamespaces: a.config.PlatformNamespaces}
	if a.params != nil {
		options.Params = map[string]map[string]any{}
		for _, name := range names {
			options.Params[name] = a.params
		}
	}
	return options
}

// input is the request that writes object.
func (a asked) input(object *unstructured.Unstructured) policies.Input {
	const defaultNamespace = "default"
	name := a.question.namespace
	switch {
	case object.GetNamespace() != "":
		name = object.GetNamespace()
	case name == "" && a.namespace != nil:
		name = a.namespace.Name
	case name == "":
		name = defaultNamespace
	}
	in := policies.Input{Object: object.DeepCopy(), Namespace: &corev1.Namespace{}}
	if a.namespace != nil {
		a.namespace.DeepCopyInto(in.Namespace)
	}
	in.Namespace.Name = name
	if in.Namespace.Labels == nil {
		in.Namespace.Labels = map[string]string{}
	}
	in.Namespace.Labels[corev1.LabelMetadataName] = name
	in.Object.SetNamespace(name)
	if a.oldObject == nil && a.question.user == "" {
		return in
	}
	operation := admissionv1.Create
	if a.oldObject != nil {
		operation = admissionv1.Update
		in.OldObject = a.oldObject.DeepCopy()
		in.OldObject.SetNamespace(name)
	}
	in.Request = policies.NewRequest(operation, name, in.Object.GetName())
	in.Request.UserInfo.Username, in.Request.UserInfo.Groups = a.question.user, a.question.groups
	return in
}

// isStageSet tells whether a document is a StageSet.
func isStageSet(d files.Document) bool {
	return d.Kind() == "StageSet" && d.APIVersion() == v1.GroupVersion.String()
}

// completeFiles lets the shell complete the names of files.
func completeFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

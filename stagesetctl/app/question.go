package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/policytest"
	"github.com/stageset/stageset/stagesetctl/files"
)

// question is the flags that say what policies are asked about an object: how a StageSet is written and by whom, and what a
// source or a rendered object belongs to.
type question struct {
	operation, oldObject            string
	namespace, namespaceObject      string
	user, permissions               string
	groups                          []string
	params, policyConfig            string
	stageSetPath, stage, sourcePath string

	flags *pflag.FlagSet
}

func (q *question) addFlags(command *cobra.Command) {
	q.flags = pflag.NewFlagSet("", pflag.ContinueOnError)
	flags := q.flags
	flags.StringVar(&q.operation, "operation", "", "How the StageSet is written: CREATE, UPDATE (see --old-object) or DELETE: "+
		"then --object is what is deleted. Without this and the flags about old object and user, it is evaluated as the "+
		"reconciler does: rules that ask who writes it, or how, rest.")
	flags.StringVar(&q.oldObject, "old-object", "", "File with the StageSet as it was, for an UPDATE.")
	flags.StringVarP(&q.namespace, "namespace", "n", "", "Namespace of objects that do not say theirs (default \"default\").")
	flags.StringVar(&q.namespaceObject, "namespace-object", "",
		"File with the Namespace, for policies that read its labels or annotations. It may have those of several objects.")
	flags.StringVar(&q.user, "user", "", "Name of the user who writes the StageSet (default \""+policytest.DefaultUser+"\").")
	flags.StringSliceVar(&q.groups, "group", nil, "Groups of that user.")
	flags.StringVar(&q.permissions, "permissions", "",
		"File with what that user may do, as the permissions of a test. It is what the variable authorizer answers.")
	flags.StringVar(&q.stageSetPath, "stageset", "",
		"File with the StageSet that renders the objects, or uses the source. Without it, there is one with a single stage.")
	flags.StringVar(&q.stage, "stage", "", "Stage of that StageSet (default the first, or each that uses the source).")
	flags.StringVar(&q.sourcePath, "source", "",
		"File with the source of that stage: as in the cluster, or just what is known of it, such as kind, name, url, verified.")
	flags.StringVar(&q.params, "params", "",
		"File with what the policies read as params. Of several objects, those that their paramRef selects.")
	flags.StringVar(&q.policyConfig, "policy-config", "",
		"Policy config of the installation: it says where the variable tenant is false, which kinds can be params, and how the "+
			"built-in policies are set.")
	command.Flags().AddFlagSet(flags)
	complete(command, "operation", "CREATE", "UPDATE", "DELETE")
	completeFileFlags(command, "old-object", "namespace-object", "permissions", "stageset", "source", "params", "policy-config")
	for _, flag := range []string{"namespace", "user", "group"} {
		complete(command, flag)
	}
	completeBy(command, "stage", q.completeStage)
}

// completeStage are the names of the stages of --stageset, for the shell.
func (q *question) completeStage(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var known []string
	owner, err := readStageSet(cmd.Context(), noInput(), "stageset", q.stageSetPath)
	if err == nil && owner != nil {
		for _, stage := range stagesOf(owner) {
			name, _ := stage["name"].(string)
			known = append(known, name)
		}
	}
	return known, cobra.ShellCompDirectiveNoFileComp
}

// asked is a question that has been read.
type asked struct {
	*question
	config     policies.Config
	parameters []files.Document
	old        *unstructured.Unstructured
	namespaces []corev1.Namespace
	authorizer policies.Authorizer
	// owner is the StageSet of --stageset; nil if there is none. facts are what is known of the source.
	owner *unstructured.Unstructured
	facts v1alpha1.SourceFacts
}

func (q *question) read(ctx context.Context, reader *files.Reader) (*asked, error) {
	a := &asked{question: q}
	var err error
	if a.config, err = policies.LoadConfig(q.policyConfig); err != nil {
		return nil, fmt.Errorf("--policy-config: %w", err)
	}
	if err := q.checkOperation(); err != nil {
		return nil, err
	}
	if a.old, err = readStageSet(ctx, reader, "old-object", q.oldObject); err != nil {
		return nil, err
	}
	if a.owner, err = readStageSet(ctx, reader, "stageset", q.stageSetPath); err != nil {
		return nil, err
	}
	for _, read := range []func(*files.Reader) error{a.readParams, a.readNamespaces, a.readPermissions, a.readSource} {
		if err := read(reader); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// checkOperation tells whether the flags about the request fit each other.
func (q *question) checkOperation() error {
	switch operation := admissionv1.Operation(q.operation); operation {
	case "", admissionv1.Update:
		if operation == admissionv1.Update && q.oldObject == "" {
			return errors.New("--operation UPDATE needs --old-object")
		}
	case admissionv1.Create, admissionv1.Delete:
		if q.oldObject != "" {
			return fmt.Errorf("--old-object is for an UPDATE, and --operation is %s", operation)
		}
	default:
		return fmt.Errorf("--operation is %q: it must be CREATE, UPDATE or DELETE", q.operation)
	}
	return nil
}

func (a *asked) readParams(reader *files.Reader) error {
	if a.params == "" {
		return nil
	}
	var err error
	if a.parameters, err = all(reader, "params", a.params); err != nil {
		return err
	}
	for _, document := range a.parameters {
		if document.Kind() == "Secret" && document.APIVersion() == "v1" {
			return document.At("kind", "a Secret cannot be the parameter of a policy")
		}
	}
	return nil
}

func (a *asked) readNamespaces(reader *files.Reader) error {
	if a.namespaceObject == "" {
		return nil
	}
	documents, err := all(reader, "namespace-object", a.namespaceObject)
	if err != nil {
		return err
	}
	for _, document := range documents {
		if document.Kind() != "Namespace" || document.APIVersion() != "v1" {
			return document.At("kind", "is not a Namespace")
		}
		var namespace corev1.Namespace
		err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(document.Fields, &namespace, true)
		if err != nil {
			return document.At("", err.Error())
		}
		a.namespaces = append(a.namespaces, namespace)
	}
	return nil
}

func (a *asked) readPermissions(reader *files.Reader) error {
	if a.permissions == "" {
		return nil
	}
	document, err := single(reader, "permissions", a.permissions)
	if err != nil {
		return err
	}
	var granted struct {
		Permissions []v1alpha1.Permission `json:"permissions"`
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(document.Fields, &granted, true)
	if err != nil {
		return document.At("", err.Error())
	}
	a.authorizer = policytest.Authorizer(granted.Permissions)
	return nil
}

func (a *asked) readSource(reader *files.Reader) error {
	if a.sourcePath == "" {
		return nil
	}
	document, err := single(reader, "source", a.sourcePath)
	if err != nil {
		return err
	}
	a.facts, err = factsOf(document)
	return err
}

// all are the objects in the file that a flag names: at least one.
func all(reader *files.Reader, flag, path string) ([]files.Document, error) {
	documents, err := reader.Read(path)
	switch {
	case isProblems(err):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("--%s: %w", flag, err)
	case len(documents) == 0:
		return nil, fmt.Errorf("--%s: there is nothing in %s", flag, path)
	}
	return documents, nil
}

// single is the only object in the file that a flag names.
func single(reader *files.Reader, flag, path string) (files.Document, error) {
	documents, err := all(reader, flag, path)
	if err != nil {
		return files.Document{}, err
	}
	if len(documents) != 1 {
		return files.Document{}, fmt.Errorf("--%s: %s has %d objects, not one", flag, path, len(documents))
	}
	return documents[0], nil
}

// isRequest tells whether the flags say how the StageSet is written, or by whom.
func (q *question) isRequest() bool {
	return q.operation != "" || q.oldObject != "" || q.user != "" || len(q.groups) > 0 || q.permissions != ""
}

// namespaceNames are those of namespaces, as messages list them.
func namespaceNames(namespaces []corev1.Namespace) string {
	list := make([]string, 0, len(namespaces))
	for i := range namespaces {
		list = append(list, namespaces[i].Name)
	}
	return strings.Join(list, ", ")
}

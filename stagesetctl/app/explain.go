package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/stagesetctl/files"
)

// explanation is the flags of "policy explain".
type explanation struct {
	question
	policy, object, stageSet, stage, source string
	builtin                                 bool
}

func (c *cli) explainCommand() *cobra.Command {
	e := &explanation{}
	command := &cobra.Command{
		Use:   "explain PATH",
		Short: "Show what every part of a policy evaluates to on an object",
		Long: `Show what every part of a policy evaluates to on an object: a StageSet, or what a policy about manifests is about.
Each line has where the part is in the file, the part, and its value. Parts in loops have the value of the last item.

The values of Secrets are replaced before anything reads them. It takes at most ten seconds.`,
		Example: `  stagesetctl policy explain policy.yaml --object stageset.yaml
  stagesetctl policy explain --builtin --policy service-account-required --object stageset.yaml
  stagesetctl policy explain images.yaml --object deployment.yaml --stage-set stageset.yaml --stage canary`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeFiles,
		RunE: func(cmd *cobra.Command, paths []string) error {
			list, err := c.loadPolicies(cmd.Context(), paths, e.builtin)
			if err != nil {
				return err
			}
			policy, err := choose(list, e.policy)
			if err != nil {
				return err
			}
			return c.explain(cmd.Context(), e, policy)
		},
	}
	flags := command.Flags()
	flags.StringVar(&e.policy, "policy", "", "Name of the policy, where there are several.")
	flags.BoolVar(&e.builtin, "builtin", false, "Take one of the built-in policies.")
	flags.StringVar(&e.object, "object", "", "File with the StageSet, or with the object that a stage renders.")
	flags.StringVar(&e.stageSet, "stage-set", "", "File with the StageSet that a source or a rendered object belongs to.")
	flags.StringVar(&e.stage, "stage", "", "Stage that a source or a rendered object belongs to. Defaults to the first.")
	flags.StringVar(&e.source, "source", "", "File with what is known of the source: kind, name, url, revision, verified ...")
	e.addFlags(flags)
	return command
}

// choose is the policy called name, or the only one.
func choose(list []files.Policy, name string) (files.Policy, error) {
	var known []string
	for _, policy := range list {
		if policy.Parsed.Name == name || name == "" && len(list) == 1 {
			return policy, nil
		}
		known = append(known, policy.Parsed.Name)
	}
	if name == "" {
		return files.Policy{}, fmt.Errorf("there are several policies, name one with --policy: %s", strings.Join(known, ", "))
	}
	return files.Policy{}, fmt.Errorf("--policy: there is no policy %q; there are: %s", name, strings.Join(known, ", "))
}

func (c *cli) explain(ctx context.Context, e *explanation, policy files.Policy) error {
	asked, err := e.read(c.reader)
	if err != nil {
		return err
	}
	in, err := e.input(c.reader, asked, target(&policy.Parsed.Spec))
	if err != nil {
		return err
	}
	found, err := policies.Explain(ctx, &policy.Parsed, asked.options(policy.Parsed.Name), in)
	if problems, err := locate(policy, err); err != nil || len(problems) > 0 {
		return errors.Join(err, nonEmpty(problems))
	}
	for _, one := range found {
		at := policy.At(one.Field, "")
		_, _ = fmt.Fprintf(c.Out, "%s:%d  %s\n  = %s\n", at.Path, at.Line, one.Field, one.Value)
		for _, step := range one.Steps {
			_, _ = fmt.Fprintf(c.Out, "  %s\n", describe(policy, one.Field, step))
		}
	}
	return nil
}

// describe is a part of the expression field on one line: where it is in the file, what it is, and its value.
func describe(policy files.Policy, field string, step policies.Step) string {
	from := policy.Within(field, step.Line, step.Column, "")
	at := fmt.Sprintf("%d:%d", from.Line, from.Column)
	if step.EndLine > 0 {
		to := policy.Within(field, step.EndLine, step.EndColumn, "")
		at += fmt.Sprintf("-%d:%d", to.Line, to.Column)
	}
	loop := ""
	if step.Loop {
		loop = "  (last item)"
	}
	return fmt.Sprintf("%s  %s  =>  %s%s", at, step.Text, step.Value, loop)
}

// nonEmpty keeps an empty list from becoming an error that is not nil.
func nonEmpty(problems files.Problems) error {
	if len(problems) == 0 {
		return nil
	}
	return problems.Sort()
}

// input is what a policy with the target is explained on.
func (e *explanation) input(reader *files.Reader, asked asked, target v1alpha1.Target) (policies.ExplainInput, error) {
	var in policies.ExplainInput
	var object *unstructured.Unstructured
	if e.object != "" {
		document, err := single(reader, "object", e.object)
		if err != nil {
			return in, err
		}
		object = document.Object()
		if target == v1alpha1.TargetStageSet && !isStageSet(document) {
			return in, document.At("kind", "is not a StageSet, which the policy is about")
		}
	}
	if object == nil && target != v1alpha1.TargetSource {
		return in, errors.New("--object is required")
	}
	if target == v1alpha1.TargetStageSet {
		whole := asked.input(object)
		in.StageSet = &whole
		return in, nil
	}
	source, err := e.sourceInput(reader, asked)
	if err != nil {
		return in, err
	}
	in.Source, in.Manifest = &source, &policies.ManifestInput{SourceInput: source, Object: object}
	return in, nil
}

// sourceInput is the source of a stage, as far as the flags say something about it.
func (e *explanation) sourceInput(reader *files.Reader, asked asked) (policies.SourceInput, error) {
	stageSet := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1.GroupVersion.String(), "kind": "StageSet", "metadata": map[string]any{"name": "unnamed"},
		"spec": map[string]any{"stages": []any{
			map[string]any{"name": "unnamed", "sourceRef": map[string]any{"name": "unnamed"}},
		}},
	}}
	var in policies.SourceInput
	if e.stageSet != "" {
		document, err := single(reader, "stage-set", e.stageSet)
		if err != nil {
			return in, err
		}
		stageSet = document.Object()
	}
	whole := asked.input(stageSet)
	in.StageSet, in.Namespace, in.Stage = whole.Object, whole.Namespace, e.stage
	if stages, _, _ := unstructured.NestedSlice(stageSet.Object, "spec", "stages"); e.stage == "" && len(stages) > 0 {
		if first, ok := stages[0].(map[string]any); ok {
			in.Stage, _ = first["name"].(string)
		}
	}
	if e.source == "" {
		return in, nil
	}
	document, err := single(reader, "source", e.source)
	if err != nil {
		return in, err
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(document.Fields, &in.Source, true)
	if err != nil {
		return in, document.At("", err.Error())
	}
	return in, nil
}

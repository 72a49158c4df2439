package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/stagesetctl/files"
)

// explanation is the flags of "policy explain".
type explanation struct {
	question
	policy, object string
	builtin        bool
}

func (c *cli) explainCommand() *cobra.Command {
	e := &explanation{}
	command := &cobra.Command{
		Use:   "explain PATH...",
		Short: "Show what every part of a policy evaluates to on an object",
		Long: `Show what every part of a policy evaluates to on an object: a StageSet, a source, or an object that a stage renders,
whatever the policy is about. Each line has where the part is in the file, the part, and its value. Parts in loops have the
value of the last item. Also what would not be evaluated is: a match condition that is false ends nothing.

The values of Secrets are replaced before anything reads them. It takes at most ten seconds.`,
		Example: `  stagesetctl policy explain policy.yaml --object stageset.yaml
  stagesetctl policy explain policy.yaml --object stageset.yaml --operation DELETE --user joe
  stagesetctl policy explain --builtin --policy service-account-required --object stageset.yaml
  stagesetctl policy explain images.yaml --object deployment.yaml --stageset stageset.yaml --stage canary`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeFiles,
		RunE: func(cmd *cobra.Command, paths []string) error {
			return c.explain(cmd.Context(), e, paths)
		},
	}
	flags := command.Flags()
	flags.StringVar(&e.policy, "policy", "", "Name of the policy, where there are several.")
	flags.BoolVar(&e.builtin, "builtin", false, "Take one of the built-in policies.")
	flags.StringVar(&e.object, "object", "", "File with the object.")
	e.addFlags(command)
	completeFileFlags(command, "object")
	completeBy(command, "policy", func(cmd *cobra.Command, paths []string, _ string) ([]string, cobra.ShellCompDirective) {
		return completePolicies(cmd.Context(), paths, e.builtin)
	})
	return command
}

// completePolicies are the names of the policies in files, for the shell. Where they cannot be told, there are none.
func completePolicies(ctx context.Context, paths []string, withBuiltin bool) ([]string, cobra.ShellCompDirective) {
	c := &cli{reader: noInput()}
	var known []string
	if beside, err := builtIn(withBuiltin); err == nil {
		if list, err := c.loadPolicies(ctx, paths, beside); err == nil {
			for _, policy := range list {
				known = append(known, policy.Parsed.Name)
			}
		}
	}
	return known, cobra.ShellCompDirectiveNoFileComp
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

func (c *cli) explain(ctx context.Context, e *explanation, paths []string) error {
	asked, err := e.read(ctx, c.reader)
	if err != nil {
		return err
	}
	beside, err := builtIn(e.builtin)
	if err != nil {
		return err
	}
	list, err := c.loadPolicies(ctx, paths, beside)
	if err != nil {
		return err
	}
	policy, err := choose(list, e.policy)
	if err != nil {
		return err
	}
	in, err := e.input(ctx, c.reader, asked, target(&policy.Parsed.Spec))
	if err != nil {
		return err
	}
	found, err := policies.Explain(ctx, &policy.Parsed, asked.options(policy), in)
	problems, err := locate(policy, err)
	switch {
	case err != nil:
		return err
	case len(problems) > 0:
		return problems.Sort()
	}
	for _, one := range found {
		at := policy.At(one.Field, "")
		_, _ = fmt.Fprintf(c.Out, "%s:%d  %s\n  = %s\n", at.Path, at.Line, one.Field, one.Value)
		for _, step := range one.Steps {
			_, _ = fmt.Fprintf(c.Out, "  %s\n", part(policy, one.Field, step))
		}
	}
	return nil
}

// part is a part of the expression field on one line: where it is in the file, what it is, and its value.
func part(policy files.Policy, field string, step policies.Step) string {
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

// input is what a policy with the target is explained on.
func (e *explanation) input(
	ctx context.Context, reader *files.Reader, asked *asked, target v1alpha1.Target,
) (policies.ExplainInput, error) {
	var in policies.ExplainInput
	if e.object == "" {
		if target != v1alpha1.TargetSource {
			return in, errors.New("name the object with --object")
		}
		source, err := asked.source(asked.stage, asked.facts)
		in.Source = &source
		return in, err
	}
	document, err := single(reader, "object", e.object)
	if err != nil {
		return in, err
	}
	switch target {
	case v1alpha1.TargetStageSet:
		object, err := storedStageSet(ctx, document)
		if err != nil {
			return in, err
		}
		request, err := asked.request(document, object)
		in.StageSet = &request
		return in, err
	case v1alpha1.TargetSource:
		source, err := asked.sourceIn(document)
		in.Source = &source
		return in, err
	default:
		manifest, err := asked.manifest(document, newScopes(nil))
		in.Manifest = &manifest
		return in, err
	}
}

package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/builtin"
	"github.com/stageset/stageset/policies/policytest"
	"github.com/stageset/stageset/stagesetctl/files"
)

func (c *cli) checkCommand() *cobra.Command {
	var config string
	command := &cobra.Command{
		Use:   "check PATH...",
		Short: "Find everything for which a cluster would refuse a policy",
		Long: `Find everything for which a cluster would refuse a policy: fields that there are not, values that are not
allowed, expressions that do not compile, fields of StageSets that there are not, and tests that fail. It needs no cluster.
Each finding is a line with file, line and column. What is only questionable is a warning, and does not count.

PATH is a file, a directory, or - for standard input. Files may have several documents, and lists; only StageSetPolicies
count.`,
		Example: `  stagesetctl policy check policies/
  stagesetctl policy list -o yaml | stagesetctl policy check -`,
		Args:              some("files or directories with policies"),
		ValidArgsFunction: completeFiles,
		RunE: func(cmd *cobra.Command, paths []string) error {
			settings, err := policies.LoadConfig(config)
			if err != nil {
				return fmt.Errorf("--policy-config: %w", err)
			}
			options, err := builtin.CheckOptions(settings)
			if err != nil {
				return err
			}
			documents, err := c.reader.Read(paths...)
			if err != nil {
				return err
			}
			return c.check(cmd.Context(), documents, options)
		},
	}
	command.Flags().StringVar(&config, "policy-config", "",
		"Policy config of the installation: it says which kinds can be params (default ConfigMaps).")
	completeFileFlags(command, "policy-config")
	return command
}

// check finds what is wrong with the policies among documents, and says so.
func (c *cli) check(ctx context.Context, documents []files.Document, options policies.CheckOptions) error {
	list, err := files.Policies(ctx, documents)
	var warnings, problems files.Problems
	switch {
	case err != nil && !errors.As(err, &problems):
		return err
	case err == nil && len(list) == 0:
		return errNoPolicy
	}
	for _, policy := range list {
		questionable, err := policytest.Check(ctx, &policy.Parsed, options)
		wrong, err := locate(policy, err)
		if err != nil {
			return err
		}
		problems = append(problems, wrong...)
		for _, warning := range located(policy, questionable) {
			warning.Message = "warning: " + warning.Message
			warnings = append(warnings, warning)
		}
	}
	for _, warning := range warnings.Sort() {
		_, _ = fmt.Fprintln(c.Out, warning)
	}
	if len(problems) > 0 {
		_, _ = fmt.Fprintln(c.Out, problems.Sort())
		return errFindings
	}
	_, err = fmt.Fprintf(c.Out, "%s\n", plural(len(list), "policy is fine", "policies are fine"))
	return err
}

// locate is where in its file a policy has the problems that err is about.
func locate(policy files.Policy, err error) (files.Problems, error) {
	var found policies.Problems
	if err != nil && !errors.As(err, &found) {
		return nil, err
	}
	return located(policy, found), nil
}

// located are the problems found in policy, with where they are in its file.
func located(policy files.Policy, found policies.Problems) files.Problems {
	var problems files.Problems
	for _, p := range found {
		message := fmt.Sprintf("policy %s: %s: %s", p.Policy, p.Field, p.Message)
		if p.Line > 0 {
			problems = append(problems, policy.Within(p.Field, p.Line, p.Column, message))
		} else {
			problems = append(problems, policy.At(p.Field, message))
		}
	}
	return problems
}

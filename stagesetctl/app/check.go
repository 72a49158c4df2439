package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/builtin"
	"github.com/stageset/stageset/stagesetctl/files"
)

func (c *cli) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check PATH...",
		Short: "Find everything for which a cluster would refuse a policy",
		Long: `Find everything for which a cluster would refuse a policy: fields that there are not, values that are not allowed,
expressions that do not compile, and fields of StageSets that there are not. It needs no cluster. What is only questionable
is a warning, and does not count.

PATH is a file, a directory, or - for standard input. Files may have several documents; only StageSetPolicies count.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			documents, err := c.reader.Read(paths...)
			if err != nil {
				return err
			}
			list, err := files.Policies(cmd.Context(), documents)
			var problems files.Problems
			if err != nil && !errors.As(err, &problems) {
				return err
			}
			if err == nil && len(list) == 0 {
				return errNoPolicy
			}
			var warnings files.Problems
			for _, policy := range list {
				warned, found, err := check(cmd.Context(), policy)
				if err != nil {
					return err
				}
				warnings, problems = append(warnings, warned...), append(problems, found...)
			}
			return c.reportCheck(len(list), warnings.Sort(), problems.Sort())
		},
	}
}

func (c *cli) reportCheck(checked int, warnings, problems files.Problems) error {
	for _, warning := range warnings {
		_, _ = fmt.Fprintln(c.Out, warning)
	}
	if len(problems) > 0 {
		_, _ = fmt.Fprintln(c.Out, problems)
		return errFindings
	}
	_, err := fmt.Fprintf(c.Out, "%s\n", plural(checked, "policy is fine", "policies are fine"))
	return err
}

var errNoPolicy = errors.New("there is no StageSetPolicy in these files")

// check is what is questionable and what is wrong about policy, which is well-formed.
func check(ctx context.Context, policy files.Policy) (warnings, problems files.Problems, err error) {
	list, err := builtin.Policies()
	if err != nil {
		return nil, nil, err
	}
	questionable, err := policies.Check(ctx, &policy.Parsed, policies.CheckOptions{BuiltIn: names(list)})
	if problems, err = locate(policy, err); err != nil {
		return nil, nil, err
	}
	for _, warning := range located(policy, questionable) {
		warning.Message = "warning: " + warning.Message
		warnings = append(warnings, warning)
	}
	return warnings, problems, nil
}

// locate is where in its file a policy has the problems that err is about.
func locate(policy files.Policy, err error) (files.Problems, error) {
	if err == nil {
		return nil, nil
	}
	var found policies.Problems
	if !errors.As(err, &found) {
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

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

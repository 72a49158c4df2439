package app

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/v1alpha1"
)

func (c *cli) listCommand() *cobra.Command {
	from := &source{}
	command := &cobra.Command{
		Use:   "list",
		Short: "List the policies of a cluster, or the built-in ones",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := from.policies(cmd.Context())
			if err != nil {
				return err
			}
			table := tabwriter.NewWriter(c.Out, 0, 0, 3, ' ', 0)
			_, _ = fmt.Fprintln(table, "NAME\tTARGET\tACTIONS\tRULES\tMUTATIONS\tTESTS")
			for i := range list {
				spec := &list[i].Spec
				_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%d\n",
					list[i].Name, target(spec), actions(spec), len(spec.Validations), len(spec.Mutations), len(spec.Tests))
			}
			return table.Flush()
		},
	}
	from.addFlags(command.Flags())
	return command
}

// target is what a policy is evaluated on.
func target(spec *v1alpha1.StageSetPolicySpec) v1alpha1.Target {
	if spec.Target == "" {
		return v1alpha1.TargetStageSet
	}
	return spec.Target
}

// actions is what a violation leads to; nothing where there is no rule that could be violated.
func actions(spec *v1alpha1.StageSetPolicySpec) string {
	switch {
	case len(spec.Validations) == 0:
		return "-"
	case len(spec.ValidationActions) == 0:
		return string(v1alpha1.ValidationActionDeny)
	}
	var names []string
	for _, action := range spec.ValidationActions {
		names = append(names, string(action))
	}
	return strings.Join(names, ",")
}

func (c *cli) showCommand() *cobra.Command {
	from := &source{}
	command := &cobra.Command{
		Use:   "show NAME",
		Short: "Show a policy of a cluster, or a built-in one, with its tests",
		Args:  cobra.ExactArgs(1),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			list, err := from.policies(cmd.Context())
			if err != nil || len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return names(list), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := from.policies(cmd.Context())
			if err != nil {
				return err
			}
			for i := range list {
				if list[i].Name != args[0] {
					continue
				}
				list[i].ManagedFields = nil
				text, err := yaml.Marshal(&list[i])
				if err != nil {
					return err
				}
				_, err = c.Out.Write(text)
				return err
			}
			return fmt.Errorf("there is no policy %q; there are: %s", args[0], strings.Join(names(list), ", "))
		},
	}
	from.addFlags(command.Flags())
	return command
}

func names(list []v1alpha1.StageSetPolicy) []string {
	all := make([]string, 0, len(list))
	for i := range list {
		all = append(all, list[i].Name)
	}
	return all
}

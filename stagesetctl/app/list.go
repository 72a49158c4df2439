package app

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/v1alpha1"
)

// The values of --output of commands that show policies. A table is what there is without it.
const (
	outputYAML = "yaml"
	outputJSON = "json"
	outputName = "name"
)

func (c *cli) listCommand() *cobra.Command {
	from := &origin{}
	var output string
	command := &cobra.Command{
		Use:   "list",
		Short: "List the policies of a cluster, or the built-in ones",
		Long: `List the policies of a cluster, with what each installation of the product makes of them, or the built-in ones.

READY tells whether the policy compiles, its params are there and its tests pass, EFFECTIVE whether there is a namespace that
it applies to; what is not True has its reason. VIOLATIONS are those among the StageSets that are stored.`,
		Example: `  stagesetctl policy list
  stagesetctl policy list --context production --output name
  stagesetctl policy list --builtin --policy-config policy-config.yaml
  stagesetctl policy list --output yaml | stagesetctl policy check -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf("output", output, "", outputYAML, outputJSON, outputName); err != nil {
				return err
			}
			list, err := from.list(cmd.Context())
			if err != nil {
				return err
			}
			if output != "" {
				return c.writeAll(output, list)
			}
			return c.table(from, list)
		},
	}
	from.addFlags(command.Flags())
	command.Flags().StringVarP(&output, "output", "o", "", "Show a list as yaml or json, or a name in each line, not a table.")
	complete(command, "output", outputYAML, outputJSON, outputName)
	return command
}

func (c *cli) table(from *origin, list []v1alpha1.StageSetPolicy) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(c.Err, "There are no policies in the cluster.")
		return err
	}
	table := tabwriter.NewWriter(c.Out, 0, 0, 3, ' ', 0)
	row := func(cells ...string) { _, _ = fmt.Fprintln(table, strings.Join(cells, "\t")) }
	if from.builtin {
		row("NAME", "TARGET", "ACTIONS", "ON FAILURE")
	} else {
		row("NAME", "TARGET", "ACTIONS", "ON FAILURE", "INSTALLATION", "READY", "EFFECTIVE", "VIOLATIONS")
	}
	for i := range list {
		policy := &list[i]
		cells := []string{policy.Name, string(target(&policy.Spec)), from.actions(policy), onFailure(&policy.Spec)}
		if from.builtin {
			row(cells...)
			continue
		}
		if len(policy.Status.Installations) == 0 {
			row(append(cells, "-", "-", "-", "-")...)
		}
		for _, installation := range policy.Status.Installations {
			row(append(cells, state(policy.Generation, installation)...)...)
		}
	}
	return table.Flush()
}

// state is what an installation makes of a policy: its name, Ready, Effective, and the violations that it found.
func state(generation int64, installation v1alpha1.InstallationStatus) []string {
	violations := "-"
	if audit := installation.Audit; audit != nil {
		violations = fmt.Sprint(audit.Violations)
	}
	if installation.ObservedGeneration < generation {
		return []string{installation.Name, "outdated", "outdated", violations}
	}
	return []string{
		installation.Name, condition(installation.Conditions, v1alpha1.ConditionReady),
		condition(installation.Conditions, v1alpha1.ConditionEffective), violations,
	}
}

// condition is the status of a condition, with the reason unless it is True.
func condition(list []metav1.Condition, kind string) string {
	found := meta.FindStatusCondition(list, kind)
	switch {
	case found == nil:
		return "-"
	case found.Status == metav1.ConditionTrue:
		return string(found.Status)
	default:
		return fmt.Sprintf("%s (%s)", found.Status, found.Reason)
	}
}

// target is what a policy is evaluated on.
func target(spec *v1alpha1.StageSetPolicySpec) v1alpha1.Target {
	if spec.Target == "" {
		return v1alpha1.TargetStageSet
	}
	return spec.Target
}

// actions is what a violation leads to; what is filled in where there is no rule that could be violated.
func actions(spec *v1alpha1.StageSetPolicySpec) string {
	var names []string
	for _, action := range spec.ValidationActions {
		names = append(names, string(action))
	}
	switch {
	case len(spec.Validations) == 0 && len(spec.Mutations) > 0:
		return "fills in"
	case len(spec.Validations) == 0:
		return "-"
	case len(names) == 0:
		return string(v1alpha1.ValidationActionDeny)
	default:
		return strings.Join(names, ",")
	}
}

// onFailure is what an expression that cannot be evaluated leads to.
func onFailure(spec *v1alpha1.StageSetPolicySpec) string {
	if spec.FailurePolicy == "" {
		return string(v1alpha1.FailurePolicyFail)
	}
	return string(spec.FailurePolicy)
}

func (c *cli) showCommand() *cobra.Command {
	from := &origin{}
	var output string
	command := &cobra.Command{
		Use:   "show NAME",
		Short: "Show a policy of a cluster, or a built-in one, with its tests",
		Long: `Show a policy of a cluster, with what each installation of the product makes of it, or a built-in one. What is
shown is a file that "stagesetctl policy test" can be given.`,
		Example: `  stagesetctl policy show few-stages
  stagesetctl policy show service-account-required --builtin > my-own.yaml`,
		Args: exactly(1, "the policy to show"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return from.complete(cmd.Context())
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf("output", output, outputYAML, outputJSON, outputName); err != nil {
				return err
			}
			policy, err := from.get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.write(output, &policy, policy.Name)
		},
	}
	from.addFlags(command.Flags())
	command.Flags().StringVarP(&output, "output", "o", outputYAML, "Show the policy as yaml or json, or just its name.")
	complete(command, "output", outputYAML, outputJSON, outputName)
	return command
}

// complete are the names of policies, for the shell. Where they cannot be told in time, there are none.
func (o *origin) complete(ctx context.Context) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	list, err := o.list(ctx)
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return policyNames(list), cobra.ShellCompDirectiveNoFileComp
}

// writeAll writes list, as kubectl would.
func (c *cli) writeAll(output string, list []v1alpha1.StageSetPolicy) error {
	if list == nil {
		list = []v1alpha1.StageSetPolicy{}
	}
	return c.write(output, map[string]any{"apiVersion": "v1", "kind": "List", "items": list}, policyNames(list)...)
}

// write writes an object, or its names.
func (c *cli) write(output string, object any, names ...string) error {
	var text []byte
	var err error
	switch output {
	case outputName:
		for _, name := range names {
			text = fmt.Appendln(text, name)
		}
	case outputJSON:
		encoder := json.NewEncoder(c.Out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(object)
	default:
		text, err = yaml.Marshal(object)
	}
	if err != nil {
		return err
	}
	_, err = c.Out.Write(text)
	return err
}

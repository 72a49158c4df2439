package app

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/stagesetctl/files"
)

// exportTo is the only value of --to: Kubernetes has no other policies.
const exportTo = "validatingadmissionpolicy"

func (c *cli) exportCommand() *cobra.Command {
	var to string
	var withBuiltin bool
	q := &question{}
	command := &cobra.Command{
		Use:   "export PATH...",
		Short: "Turn policies into Kubernetes' own, which need no webhook",
		Long: `Turn policies about StageSets into ValidatingAdmissionPolicies, and MutatingAdmissionPolicies for their mutations,
with bindings. Params and the platform namespaces are written into them. What cannot be expressed there is an error that says
which part. Of the built-in policies, those are exported that the policy config does not switch off; which of them cannot be
is said, and left out.

They decide at admission alone. They do not record who filled in a field, and do not let pass what the webhook always
lets pass, such as turning suspend on, or changing labels of a StageSet that was refused already before.`,
		Example: `  stagesetctl policy export few-stages.yaml | kubectl apply -f -
  stagesetctl policy export freeze.yaml --params configmap.yaml
  stagesetctl policy export --builtin --policy-config policy-config.yaml`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeFiles,
		RunE: func(cmd *cobra.Command, paths []string) error {
			if to != exportTo {
				return fmt.Errorf("--to is %q: it must be %s", to, exportTo)
			}
			asked, err := q.read(cmd.Context(), c.reader)
			if err != nil {
				return err
			}
			if len(asked.parameters) > 1 {
				return fmt.Errorf("--params: %s has %d objects, not one", q.params, len(asked.parameters))
			}
			beside, err := asked.enabled(withBuiltin)
			if err != nil {
				return err
			}
			list, err := c.loadPolicies(cmd.Context(), paths, beside)
			if err != nil {
				return err
			}
			return c.export(list, asked)
		},
	}
	flags := command.Flags()
	flags.StringVar(&to, "to", exportTo, "What to turn policies into.")
	flags.BoolVar(&withBuiltin, "builtin", false, "Also export the built-in policies, as --policy-config sets them.")
	flags.StringVar(&q.params, "params", "", "File with the object that the policies read as params.")
	flags.StringVar(&q.policyConfig, "policy-config", "",
		"Policy config of the installation: it says where the variable tenant is false, and how the built-in policies are set.")
	complete(command, "to", exportTo)
	completeFileFlags(command, "params", "policy-config")
	return command
}

// export writes all of list, or what is wrong with it. A built-in policy that cannot be exported is left out, which is said.
func (c *cli) export(list []files.Policy, asked *asked) error {
	var problems files.Problems
	var text []byte
	for _, policy := range list {
		options := asked.options(policy)
		exported, err := policies.Export(&policy.Parsed, policies.ExportOptions{
			PlatformNamespaces: options.PlatformNamespaces, TrustNamespaceKeys: options.TrustNamespaceKeys,
			Params: options.Params[policy.Parsed.Name],
		})
		wrong, err := locate(policy, err)
		switch {
		case err != nil:
			return err
		case len(wrong) > 0 && strings.HasPrefix(policy.Path, builtinPath):
			_, _ = fmt.Fprintf(c.Err, "left out: %s\n", wrong[0].Message)
			continue
		case len(wrong) > 0:
			problems = append(problems, wrong...)
			continue
		}
		documents, err := marshal(exported)
		if err != nil {
			return err
		}
		text = append(text, documents...)
	}
	if len(problems) > 0 {
		return problems.Sort()
	}
	_, err := c.Out.Write(text)
	return err
}

func marshal(exported policies.Exported) ([]byte, error) {
	var objects []any
	if exported.Validating != nil {
		objects = append(objects, exported.Validating, exported.ValidatingBinding)
	}
	if exported.Mutating != nil {
		objects = append(objects, exported.Mutating, exported.MutatingBinding)
	}
	if len(objects) == 0 {
		return nil, errors.New("there is nothing to export")
	}
	var text []byte
	for _, object := range objects {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
		unstructured.RemoveNestedField(fields, "status")
		document, err := yaml.Marshal(fields)
		if err != nil {
			return nil, err
		}
		text = append(append(text, "---\n"...), document...)
	}
	return text, nil
}

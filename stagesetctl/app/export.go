package app

import (
	"errors"
	"fmt"
	"io"

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
	var to, params, config string
	var withBuiltin bool
	command := &cobra.Command{
		Use:   "export PATH...",
		Short: "Turn policies into Kubernetes' own, which need no webhook",
		Long: `Turn policies about StageSets into ValidatingAdmissionPolicies, and MutatingAdmissionPolicies for their mutations,
with bindings. Params and the platform namespaces are written into them. What cannot be expressed there is an error.

They decide at admission alone. They do not record who filled in a field, and do not let pass what the webhook always
lets pass, such as turning suspend on, or changing labels of a StageSet that was refused already before.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, paths []string) error {
			if to != exportTo {
				return fmt.Errorf("--to is %q: it must be %s", to, exportTo)
			}
			list, err := c.loadPolicies(cmd.Context(), paths, withBuiltin)
			if err != nil {
				return err
			}
			asked, err := (&question{params: params, policyConfig: config}).read(c.reader)
			if err != nil {
				return err
			}
			return export(c.Out, list, policies.ExportOptions{
				PlatformNamespaces: asked.config.PlatformNamespaces, Params: asked.params,
			})
		},
	}
	flags := command.Flags()
	flags.StringVar(&to, "to", exportTo, "What to turn policies into.")
	flags.StringVar(&params, "params", "", "File with the object that the policies read as params.")
	flags.StringVar(&config, "policy-config", "",
		"Policy config of the installation. Its platformNamespaces say where the variable tenant is false.")
	flags.BoolVar(&withBuiltin, "builtin", false, "Also export the built-in policies.")
	return command
}

// export writes all of list, or what is wrong with it.
func export(out io.Writer, list []files.Policy, options policies.ExportOptions) error {
	var problems files.Problems
	var text []byte
	for _, policy := range list {
		exported, err := policies.Export(&policy.Parsed, options)
		wrong, err := locate(policy, err)
		if err != nil {
			return err
		}
		if problems = append(problems, wrong...); len(wrong) > 0 {
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
	_, err := out.Write(text)
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

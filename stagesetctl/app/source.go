package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies/builtin"
	"github.com/stageset/stageset/stagesetctl/files"
)

// loadPolicies are the policies in files, and the built-in ones if asked for.
func (c *cli) loadPolicies(ctx context.Context, paths []string, withBuiltin bool) ([]files.Policy, error) {
	var list []files.Policy
	if len(paths) > 0 {
		documents, err := c.reader.Read(paths...)
		if err != nil {
			return nil, err
		}
		if list, err = files.Policies(ctx, documents); err != nil {
			return nil, err
		}
	}
	if withBuiltin {
		own, err := builtinPolicies()
		if err != nil {
			return nil, err
		}
		for _, policy := range own {
			if i := slices.IndexFunc(list, func(p files.Policy) bool { return p.Parsed.Name == policy.Parsed.Name }); i >= 0 {
				return nil, list[i].At("metadata.name", "policy "+policy.Parsed.Name+" is also a built-in one")
			}
		}
		list = append(list, own...)
	}
	if len(list) == 0 {
		if len(paths) == 0 {
			return nil, errors.New("name files with policies, or use --builtin")
		}
		return nil, errNoPolicy
	}
	return list, nil
}

// builtinPath stands for the files of the built-in policies.
const builtinPath = "builtin/"

// builtinPolicies are the built-in policies as if they were in files.
func builtinPolicies() ([]files.Policy, error) {
	list, err := builtin.Policies()
	if err != nil {
		return nil, err
	}
	var found []files.Policy
	for _, policy := range list {
		text, err := yaml.Marshal(policy)
		if err != nil {
			return nil, err
		}
		documents, err := files.Parse(builtinPath+policy.Name+".yaml", string(text))
		if err != nil {
			return nil, err
		}
		found = append(found, files.Policy{Document: documents[0], Parsed: policy})
	}
	return found, nil
}

// source is the flags that say where policies come from that are not in files.
type source struct {
	builtin    bool
	kubeconfig string
	context    string
}

func (s *source) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&s.builtin, "builtin", false, "The policies that are built into the product, without a cluster.")
	flags.StringVar(&s.kubeconfig, "kubeconfig", "",
		"Path of a kubeconfig file. Defaults to the environment variable KUBECONFIG, or else ~/.kube/config.")
	flags.StringVar(&s.context, "context", "", "Context of the kubeconfig file.")
}

// policies are those that the flags name, sorted by name.
func (s *source) policies(ctx context.Context) ([]v1alpha1.StageSetPolicy, error) {
	if s.builtin {
		return builtin.Policies()
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		rules, &clientcmd.ConfigOverrides{CurrentContext: s.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster (--builtin needs none): %w", err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	resource := v1alpha1.GroupVersion.WithResource("stagesetpolicies")
	found, err := client.Resource(resource).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, errors.New("the cluster has no StageSetPolicies: their CustomResourceDefinition is not installed")
	case err != nil:
		return nil, fmt.Errorf("listing StageSetPolicies: %w", err)
	}
	list := make([]v1alpha1.StageSetPolicy, len(found.Items))
	for i := range found.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Items[i].Object, &list[i]); err != nil {
			return nil, fmt.Errorf("policy %s: %w", found.Items[i].GetName(), err)
		}
	}
	slices.SortFunc(list, func(a, b v1alpha1.StageSetPolicy) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

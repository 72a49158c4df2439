package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/builtin"
)

// origin is the flags that say where policies come from that are not in files.
type origin struct {
	connection
	builtin      bool
	policyConfig string

	off map[string]bool // built-in policies that the policy config switches off
}

func (o *origin) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.builtin, "builtin", false, "The policies that are built into the product, without a cluster.")
	flags.StringVar(&o.policyConfig, "policy-config", "", "Policy config of an installation, which sets the built-in policies.")
	o.connection.addFlags(flags)
}

// connection is the flags that say how to reach a cluster.
type connection struct {
	kubeconfig string
	context    string
	timeout    time.Duration
}

func (o *connection) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", "",
		"Path of a kubeconfig file. Without it, the environment variable KUBECONFIG says where it is, or it is ~/.kube/config.")
	flags.StringVar(&o.context, "context", "", "Context of the kubeconfig file (default its current one).")
	flags.DurationVar(&o.timeout, "request-timeout", 30*time.Second, "How long to wait for the cluster.")
}

// list are all policies, sorted by name.
func (o *origin) list(ctx context.Context) ([]v1alpha1.StageSetPolicy, error) {
	if o.builtin {
		return o.builtIn()
	}
	client, err := o.client()
	if err != nil {
		return nil, err
	}
	found, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, explained("list", err)
	}
	list := make([]v1alpha1.StageSetPolicy, len(found.Items))
	for i := range found.Items {
		if list[i], err = policyOf(&found.Items[i]); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(list, func(a, b v1alpha1.StageSetPolicy) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// get is the policy called name.
func (o *origin) get(ctx context.Context, name string) (v1alpha1.StageSetPolicy, error) {
	if o.builtin {
		list, err := o.builtIn()
		if err != nil {
			return v1alpha1.StageSetPolicy{}, err
		}
		for i := range list {
			if list[i].Name == name {
				return list[i], nil
			}
		}
		return v1alpha1.StageSetPolicy{}, fmt.Errorf("there is no built-in policy %q; there are: %s",
			name, strings.Join(policyNames(list), ", "))
	}
	client, err := o.client()
	if err != nil {
		return v1alpha1.StageSetPolicy{}, err
	}
	found, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !isUnserved(err):
		return v1alpha1.StageSetPolicy{}, fmt.Errorf("the cluster has no policy %q: see \"stagesetctl policy list\"", name)
	case err != nil:
		return v1alpha1.StageSetPolicy{}, explained("get", err)
	}
	return policyOf(found)
}

// builtIn are the built-in policies as the policy config sets them, and those that it switches off as they are.
func (o *origin) builtIn() ([]v1alpha1.StageSetPolicy, error) {
	config, err := policies.LoadConfig(o.policyConfig)
	if err != nil {
		return nil, fmt.Errorf("--policy-config: %w", err)
	}
	enabled, err := builtin.Configured(config)
	if err != nil {
		return nil, fmt.Errorf("--policy-config: %w", err)
	}
	list, err := builtin.Policies()
	if err != nil {
		return nil, err
	}
	o.off = map[string]bool{}
	for i := range list {
		at := slices.IndexFunc(enabled, func(p v1alpha1.StageSetPolicy) bool { return p.Name == list[i].Name })
		if o.off[list[i].Name] = at < 0; at >= 0 {
			list[i] = enabled[at]
		}
	}
	return list, nil
}

// actions is what a violation of policy leads to.
func (o *origin) actions(policy *v1alpha1.StageSetPolicy) string {
	if o.off[policy.Name] {
		return string(policies.SwitchOff)
	}
	return actions(&policy.Spec)
}

// client reads policies of the cluster that the flags name.
func (o *origin) client() (dynamic.ResourceInterface, error) {
	config, _, err := o.config()
	if errors.Is(err, errNoKubeconfig) {
		return nil, fmt.Errorf("%w, or see the built-in policies with --builtin", err)
	}
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig: %w", err)
	}
	return client.Resource(v1alpha1.GroupVersion.WithResource("stagesetpolicies")), nil
}

// errNoKubeconfig is that nothing says how to reach a cluster.
var errNoKubeconfig = errors.New("there is no kubeconfig: name one with --kubeconfig")

// config is the way to the cluster that the flags name, and the namespace of what names none.
func (o *connection) config() (config *rest.Config, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath, rules.WarnIfAllMissing = o.kubeconfig, false
	loading := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context})
	config, err = loading.ClientConfig()
	if err == nil {
		namespace, _, err = loading.Namespace()
	}
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, "", errNoKubeconfig
	case err != nil:
		return nil, "", fmt.Errorf("the kubeconfig: %w", err)
	}
	config.Timeout, config.UserAgent, config.WarningHandler = o.timeout, userAgent(), rest.NoWarnings{}
	return config, namespace, nil
}

// explained is an error of the API server in words for whoever may have to grant a permission.
func explained(verb string, err error) error {
	switch {
	case isUnserved(err):
		return errors.New("the cluster has no StageSetPolicies: their CustomResourceDefinition is not installed")
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you may not %s policies: have %q granted on stagesetpolicies.%s, which belong to no namespace, "+
			"with a ClusterRole (%w)", verb, verb, v1alpha1.GroupVersion.Group, err)
	default:
		return fmt.Errorf("reading policies of the cluster: %w", err)
	}
}

// isUnserved tells the answer that there is no such kind from the answer that there is no such object.
func isUnserved(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == ""
}

func policyOf(object *unstructured.Unstructured) (v1alpha1.StageSetPolicy, error) {
	var policy v1alpha1.StageSetPolicy
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &policy); err != nil {
		return policy, fmt.Errorf("policy %s is not one that this program knows: %w", object.GetName(), err)
	}
	policy.ManagedFields = nil
	return policy, nil
}

// policyNames are the names of list.
func policyNames(list []v1alpha1.StageSetPolicy) []string {
	all := make([]string, 0, len(list))
	for i := range list {
		all = append(all, list[i].Name)
	}
	return all
}

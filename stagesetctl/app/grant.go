package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	v1 "github.com/stageset/stageset/api/v1"
)

// sourceResources are the resources of the kinds of sources.
var sourceResources = map[string]string{
	string(v1.SourceKindExternalArtifact): "externalartifacts",
	string(v1.SourceKindGitRepository):    "gitrepositories",
	string(v1.SourceKindOCIRepository):    "ocirepositories",
	string(v1.SourceKindBucket):           "buckets",
}

func (c *cli) grantCommand() *cobra.Command {
	command := &cobra.Command{
		Use:                   "grant",
		Short:                 "Print the RBAC that shares something with a tenant",
		Args:                  cobra.NoArgs,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		DisableFlagsInUseLine: true,
	}
	command.AddCommand(c.grantSourceCommand())
	return command
}

func (c *cli) grantSourceCommand() *cobra.Command {
	var to []string
	command := &cobra.Command{
		Use:   "source KIND/NAMESPACE/NAME --to NAMESPACE/ACCOUNT",
		Short: "Print the Role and RoleBinding that let accounts use one source of another namespace",
		Long: `Print the Role and RoleBinding that let accounts use one source of another namespace. A source is read as the account
of the stage, so that this is all there is to sharing it, where the policy no-cross-namespace-refs is off. Deleting the
RoleBinding ends it: what runs goes on running, and nothing new is applied.

Nothing is sent to a cluster.`,
		Example: `  stagesetctl grant source GitRepository/platform/charts --to team-a/deployer | kubectl apply -f -
  stagesetctl grant source OCIRepository/platform/base --to team-a/deployer --to team-b/deployer`,
		Args:              exactly(1, "one source, as KIND/NAMESPACE/NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, arguments []string) error {
			source, err := parseSource(arguments[0])
			if err != nil {
				return misused(cmd, "%w", err)
			}
			accounts, err := parseAccounts(to)
			if err != nil {
				return misused(cmd, "has --to, but %w", err)
			}
			return c.print(source.role(), source.binding(accounts))
		},
	}
	command.Flags().StringSliceVar(&to, "to", nil, "Account, as NAMESPACE/NAME, that may use the source; may be repeated.")
	if err := command.MarkFlagRequired("to"); err != nil {
		panic(err) // there is no such flag, which the first test notices
	}
	completeBy(command, "to", cobra.NoFileCompletions)
	return command
}

// source names one source.
type source struct{ kind, namespace, name string }

func parseSource(text string) (source, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return source{}, fmt.Errorf("takes a source as KIND/NAMESPACE/NAME, and not %q", text)
	}
	parsed := source{namespace: parts[1], name: parts[2]}
	var kinds []string
	for kind := range sourceResources {
		kinds = append(kinds, kind)
		if strings.EqualFold(kind, parts[0]) {
			parsed.kind = kind
		}
	}
	slices.Sort(kinds)
	if parsed.kind == "" {
		return source{}, fmt.Errorf("takes a source of kind %s, and not %q", strings.Join(kinds, ", "), parts[0])
	}
	if problems := validation.IsDNS1123Label(parsed.namespace); len(problems) > 0 {
		return source{}, fmt.Errorf("takes a source whose namespace is not %q: %s", parsed.namespace, problems[0])
	}
	if problems := validation.IsDNS1123Subdomain(parsed.name); len(problems) > 0 {
		return source{}, fmt.Errorf("takes a source whose name is not %q: %s", parsed.name, problems[0])
	}
	return parsed, nil
}

func parseAccounts(texts []string) ([]rbacv1.Subject, error) {
	var accounts []rbacv1.Subject
	for _, text := range texts {
		namespace, name, _ := strings.Cut(text, "/")
		if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
			return nil, fmt.Errorf("%q is no account: it must be NAMESPACE/NAME", text)
		}
		accounts = append(accounts, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name})
	}
	slices.SortFunc(accounts, func(a, b rbacv1.Subject) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return slices.Compact(accounts), nil
}

// meta names both objects alike: there is one pair for each source.
func (s source) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.namespace, Name: "use-" + strings.ToLower(s.kind) + "-" + s.name}
}

func (s source) role() *rbacv1.Role {
	return &rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
		ObjectMeta: s.meta(),
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{v1.SourceGroup}, Resources: []string{sourceResources[s.kind]},
			ResourceNames: []string{s.name}, Verbs: []string{"get"},
		}},
	}
}

func (s source) binding(accounts []rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: s.meta(),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: s.meta().Name},
		Subjects:   accounts,
	}
}

// print writes objects as one stream of YAML.
func (c *cli) print(objects ...any) error {
	for _, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(c.Out, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}

package app

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/permissions"
	"github.com/stageset/stageset/stagesetctl/render"
)

// grantOptions are the flags of the command rbac.
type grantOptions struct {
	connection
	file, role, artifacts string
	directories           []string
	missing               bool
}

func (c *cli) rbacCommand() *cobra.Command {
	o := &grantOptions{}
	command := &cobra.Command{
		Use:   "rbac NAMESPACE/NAME | rbac --filename FILE",
		Short: "Print the least RBAC that a release needs",
		Long: `Print the Roles, ClusterRole and bindings that the accounts of a StageSet need, and nothing more: to read what it
refers to, to apply and delete what its stages render, and to give others what roles and bindings among that give. What is in
a namespace is granted by kind, what is in none, and what is only read, by name.

Sources are read, and stages rendered, as you: you have to be allowed to get the StageSet, its sources, and the ConfigMaps
and Secrets of postBuild.substituteFrom; with --missing, to impersonate its accounts too, as edit and admin allow in a
namespace. Artifacts are downloaded from where the sources say that they are, unless --artifact-server or --source says
otherwise. Nothing is written to the cluster.`,
		Example: `  kubectl -n flux-system port-forward service/source-controller 8080:80 &
  stagesetctl rbac shop/frontend --artifact-server http://localhost:8080 | kubectl apply -f -
  stagesetctl rbac --filename stageset.yaml --source GitRepository/shop/frontend=deploy/ --missing`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, arguments []string) error {
			if (len(arguments) == 0) == (o.file == "") {
				return misused(cmd, "takes a StageSet, as NAMESPACE/NAME, or --filename")
			}
			return c.rbac(cmd.Context(), cmd, o, strings.Join(arguments, ""))
		},
	}
	flags := command.Flags()
	o.addFlags(flags)
	flags.StringVarP(&o.file, "filename", "f", "", "File with a StageSet, which does not have to be in the cluster.")
	flags.BoolVar(&o.missing, "missing", false, "Print only what the accounts do not have yet.")
	flags.StringVar(&o.role, "as-role", "", "Name of what is printed (default stageset-NAMESPACE-NAME).")
	flags.StringVar(&o.artifacts, "artifact-server", "",
		"Where artifacts are served, if not where sources say: http://localhost:8080.")
	flags.StringArrayVar(&o.directories, "source", nil,
		"Directory with the content of a source, as KIND/NAMESPACE/NAME=DIRECTORY; may be repeated.")
	completeFileFlags(command, "filename")
	for _, flag := range []string{"as-role", "artifact-server", "source"} {
		completeBy(command, flag, cobra.NoFileCompletions)
	}
	return command
}

func (c *cli) rbac(ctx context.Context, cmd *cobra.Command, o *grantOptions, name string) error {
	options, err := o.render()
	if err != nil {
		return misused(cmd, "has %w", err)
	}
	config, home, err := o.config()
	if err != nil {
		return err
	}
	cluster, err := render.NewCluster(config)
	if err != nil {
		return fmt.Errorf("the kubeconfig: %w", err)
	}
	set, err := c.stageSet(ctx, cluster, o.file, name)
	if err != nil {
		return err
	}
	if set.Namespace == "" {
		set.Namespace = home
	}
	stages, err := cluster.Release(ctx, set, options)
	if err != nil {
		return err
	}
	granted, err := o.grants(ctx, cluster, set, stages)
	if err != nil {
		return err
	}
	if len(granted) == 0 {
		_, err := fmt.Fprintln(c.Err, "Nothing is missing.")
		return err
	}
	if _, err := fmt.Fprintln(c.Out, listNote); err != nil {
		return err
	}
	return c.print(append(namespaces(cluster.NewNamespaces(ctx, stages), granted), granted...)...)
}

// listNote is what is said of the one permission that is not needed.
const listNote = `# With list on the same resources, looking at what is applied costs a request for each kind and namespace;
# without it, one for each object.`

// stageSet is the StageSet that the command is about.
func (c *cli) stageSet(ctx context.Context, cluster *render.Cluster, file, name string) (*v1.StageSet, error) {
	if file == "" {
		namespace, own, ok := strings.Cut(name, "/")
		if !ok || namespace == "" || own == "" {
			return nil, fmt.Errorf("%q is no StageSet: it must be NAMESPACE/NAME", name)
		}
		return cluster.StageSet(ctx, namespace, own)
	}
	object, err := readStageSet(ctx, c.reader, "filename", file)
	if err != nil {
		return nil, err
	}
	set := &v1.StageSet{}
	return set, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, set)
}

// render is where the flags say that the content of sources comes from.
func (o *grantOptions) render() (render.Options, error) {
	options := render.Options{Directories: map[render.Source]string{}}
	for _, text := range o.directories {
		name, directory, _ := strings.Cut(text, "=")
		parts := strings.Split(name, "/")
		if len(parts) != 3 || directory == "" {
			return options, fmt.Errorf("--source %q: it must be KIND/NAMESPACE/NAME=DIRECTORY", text)
		}
		options.Directories[render.Source{Kind: v1.SourceKind(parts[0]), Namespace: parts[1], Name: parts[2]}] = directory
	}
	if o.artifacts != "" {
		server, err := url.Parse(o.artifacts)
		if err != nil || server.Host == "" || server.Scheme != "http" && server.Scheme != "https" {
			return options, errors.New("--artifact-server that is no address such as http://localhost:8080")
		}
		options.Artifacts = server
	}
	if problems := validation.IsDNS1123Subdomain(o.role); o.role != "" && len(problems) > 0 {
		return options, fmt.Errorf("--as-role %q: %s", o.role, problems[0])
	}
	return options, nil
}

// grants are the roles and bindings that the accounts of the release need, or those that they lack.
func (o *grantOptions) grants(
	ctx context.Context, cluster *render.Cluster, set *v1.StageSet, stages []render.Stage,
) ([]any, error) {
	needs := cluster.Needs(set, stages)
	var granted []any
	for _, need := range needs {
		wanted := need.Exactly
		if o.missing {
			var err error
			if wanted, err = cluster.Missing(ctx, set.Namespace, need); err != nil {
				return nil, err
			}
		}
		role := o.role
		if role == "" {
			role = "stageset-" + set.Namespace + "-" + set.Name
		}
		if len(needs) > 1 {
			role += "-" + need.Account
		}
		account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: set.Namespace, Name: need.Account}
		granted = append(granted, rolesFor(role, account, need.Granted(wanted))...)
	}
	return granted, nil
}

// rolesFor are a role for each namespace, and one for the cluster, that give an account permissions.
func rolesFor(name string, account rbacv1.Subject, all permissions.Permissions) []any {
	byNamespace := map[string]permissions.Permissions{}
	var names []string
	for _, p := range all {
		if byNamespace[p.Namespace] == nil {
			names = append(names, p.Namespace)
		}
		byNamespace[p.Namespace] = append(byNamespace[p.Namespace], p)
	}
	slices.Sort(names)
	var granted []any
	for _, namespace := range names {
		rules := permissions.PolicyRules(byNamespace[namespace])
		about := metav1.ObjectMeta{Namespace: namespace, Name: name}
		kind := func(kind string) metav1.TypeMeta {
			return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
		}
		ref := func(kind string) rbacv1.RoleRef {
			return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
		}
		if namespace == "" {
			granted = append(granted,
				&rbacv1.ClusterRole{TypeMeta: kind("ClusterRole"), ObjectMeta: about, Rules: rules},
				&rbacv1.ClusterRoleBinding{TypeMeta: kind("ClusterRoleBinding"), ObjectMeta: about, RoleRef: ref("ClusterRole"),
					Subjects: []rbacv1.Subject{account}})
			continue
		}
		granted = append(granted,
			&rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: about, Rules: rules},
			&rbacv1.RoleBinding{TypeMeta: kind("RoleBinding"), ObjectMeta: about, RoleRef: ref("Role"),
				Subjects: []rbacv1.Subject{account}})
	}
	return granted
}

// namespaces are those among names that roles are granted in: the release makes them, and roles have to be there before.
func namespaces(names []string, granted []any) []any {
	var needed []any
	for _, name := range names {
		for _, object := range granted {
			if role, ok := object.(*rbacv1.Role); ok && role.Namespace == name {
				needed = append(needed, map[string]any{
					"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
				})
				break
			}
		}
	}
	return needed
}

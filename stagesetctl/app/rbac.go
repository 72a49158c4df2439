package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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
	grantees
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

Sources are read, and stages rendered, as you: you have to be allowed to get the StageSet, its sources, the ConfigMaps
and Secrets of postBuild.substituteFrom, and the ConfigMap of kubeConfig; with --missing, to impersonate its accounts too, as
edit and admin allow in a namespace. Artifacts are downloaded from where the sources say that they are, unless
--artifact-server or --source says otherwise. Nothing is written to a cluster.

A StageSet with kubeConfig needs roles in two clusters: --cluster says in which. With "home" it is the StageSet's own, where
what leads to the other one is read, and the sources. With "target" it is the other one, where the user that kubeConfig leads
to needs to impersonate the accounts, and these need what they apply. What kinds there are in that one, and with --missing
what the accounts have, is asked as you, by --target-kubeconfig or --target-context.`,
		Example: `  kubectl -n flux-system port-forward service/source-controller 8080:80 &
  stagesetctl rbac shop/frontend --artifact-server http://localhost:8080 | kubectl apply -f -
  stagesetctl rbac --filename stageset.yaml --source GitRepository/shop/frontend=deploy/ --missing
  stagesetctl rbac shop/abroad --cluster home | kubectl apply -f -
  stagesetctl rbac shop/abroad --cluster target --target-context abroad --target-user hub | \
    kubectl --context abroad apply -f -`,
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
	o.connection.addFlags(flags)
	o.grantees.addFlags(command)
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
	if err := o.grantees.check(); err != nil {
		return misused(cmd, "has %w", err)
	}
	home, namespace, err := o.cluster()
	if err != nil {
		return err
	}
	set, err := c.stageSet(ctx, home, o.file, name)
	if err != nil {
		return err
	}
	if set.Namespace == "" {
		set.Namespace = namespace
	}
	if err := o.choose(set, o.missing); err != nil {
		return err
	}
	if options.Target, err = o.targetCluster(o.connection); err != nil {
		return err
	}
	release, err := home.Release(ctx, set, options)
	if err != nil {
		return err
	}
	asked := home
	if o.elsewhere() {
		asked = options.Target
	}
	granted, err := o.grants(ctx, asked, set, release)
	if err != nil {
		return err
	}
	if len(granted) == 0 {
		_, err := fmt.Fprintln(c.Err, "Nothing is missing.")
		return err
	}
	if _, err := fmt.Fprintln(c.Out, listNote+o.bindingNote()); err != nil {
		return err
	}
	return c.print(append(namespaces(release.NewNamespaces(ctx, o.elsewhere()), granted), granted...)...)
}

// cluster is the cluster that the flags name, and the namespace of what names none.
func (o *connection) cluster() (*render.Cluster, string, error) {
	config, namespace, err := o.config()
	if err != nil {
		return nil, "", err
	}
	cluster, err := render.NewCluster(config)
	if err != nil {
		return nil, "", fmt.Errorf("the kubeconfig: %w", err)
	}
	return cluster, namespace, nil
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

// grants are the roles and bindings that the accounts of the release need, or those that they lack. What they have is asked
// of the cluster.
func (o *grantOptions) grants(
	ctx context.Context, cluster *render.Cluster, set *v1.StageSet, release *render.Release,
) ([]any, error) {
	needs := slices.DeleteFunc(release.Needs(), func(need render.Need) bool { return need.Elsewhere != o.elsewhere() })
	var granted []any
	for _, need := range needs {
		to, err := o.grantee(set, need)
		if err != nil {
			return nil, err
		}
		wanted := need.Exactly
		if o.missing {
			if wanted, err = cluster.Missing(ctx, username(*to), need); err != nil {
				return nil, err
			}
		}
		role := cmp.Or(o.role, "stageset-"+set.Namespace+"-"+set.Name)
		if len(needs) > 1 && need.Account != "" {
			role += "-" + need.Account
		}
		granted = append(granted, rolesFor(role, to, need.Granted(wanted))...)
	}
	return granted, nil
}

// rolesFor are a role for each namespace, and one for the cluster, that give somebody permissions; nil is nobody yet.
func rolesFor(name string, to *rbacv1.Subject, all permissions.Permissions) []any {
	byNamespace := map[string]permissions.Permissions{}
	for _, p := range all {
		byNamespace[p.Namespace] = append(byNamespace[p.Namespace], p)
	}
	var granted []any
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		rules := permissions.PolicyRules(byNamespace[namespace])
		about := metav1.ObjectMeta{Namespace: namespace, Name: name}
		kind := func(kind string) metav1.TypeMeta {
			return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
		}
		ref := func(kind string) rbacv1.RoleRef {
			return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
		}
		role, binding := any(&rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: about, Rules: rules}), any(nil)
		if namespace == "" {
			role = &rbacv1.ClusterRole{TypeMeta: kind("ClusterRole"), ObjectMeta: about, Rules: rules}
		}
		switch {
		case to == nil:
		case namespace == "":
			binding = &rbacv1.ClusterRoleBinding{TypeMeta: kind("ClusterRoleBinding"), ObjectMeta: about,
				RoleRef: ref("ClusterRole"), Subjects: []rbacv1.Subject{*to}}
		default:
			binding = &rbacv1.RoleBinding{TypeMeta: kind("RoleBinding"), ObjectMeta: about,
				RoleRef: ref("Role"), Subjects: []rbacv1.Subject{*to}}
		}
		if granted = append(granted, role); binding != nil {
			granted = append(granted, binding)
		}
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

package app

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/stagesetctl/render"
)

// The values of --cluster.
const (
	clusterHome   = "home"
	clusterTarget = "target"
)

// grantees is the flags that say in which cluster, and whom, roles are for where the StageSet does not say it.
type grantees struct {
	// chosen is one of two clusters; empty of a StageSet that is about one alone.
	chosen string
	// target is how whoever runs the command gets to the cluster that spec.kubeConfig leads to.
	target connection
	// targetUser is whom spec.kubeConfig leads to; empty if that is not known.
	targetUser string
	// defaultAccount and reconciler are what an installation has for a StageSet that names no account.
	defaultAccount, reconciler string
}

func (g *grantees) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&g.chosen, "cluster", "",
		"Of a StageSet with kubeConfig, the cluster that the roles are for: its own (home), or the other one (target).")
	flags.StringVar(&g.target.kubeconfig, "target-kubeconfig", "",
		"Path of a kubeconfig file of yours that leads to the other cluster (default the file of --kubeconfig).")
	flags.StringVar(&g.target.context, "target-context", "",
		"Context of that file that leads to the other cluster (default its current one, with --target-kubeconfig).")
	flags.StringVar(&g.targetUser, "target-user", "",
		"Name of the user that the StageSet's kubeConfig leads to, as the other cluster knows it. Without it, nobody is bound to "+
			"what that user needs.")
	flags.StringVar(&g.defaultAccount, "default-service-account", "",
		"Account of a StageSet without kubeConfig that names none, as stageset-reconciler has it by the flag of that name.")
	flags.StringVar(&g.reconciler, "reconciler", "",
		"Account of stageset-reconciler, as NAMESPACE/NAME: whom the roles are for where none is named, and "+
			"--allow-controller-identity allows that.")
	complete(command, "cluster", clusterHome, clusterTarget)
	completeFileFlags(command, "target-kubeconfig")
	for _, flag := range []string{"target-context", "target-user", "default-service-account", "reconciler"} {
		completeBy(command, flag, cobra.NoFileCompletions)
	}
}

// check tells whether the flags have values that they can have.
func (g *grantees) check() error {
	if g.reconciler != "" {
		if _, err := parseAccounts([]string{g.reconciler}); err != nil {
			return fmt.Errorf("--reconciler, but %w", err)
		}
	}
	return oneOf("cluster", g.chosen, "", clusterHome, clusterTarget)
}

// elsewhere is true when the roles are for the cluster that spec.kubeConfig leads to.
func (g *grantees) elsewhere() bool { return g.chosen == clusterTarget }

// leadsThere is true when the flags say how the other cluster is reached.
func (g *grantees) leadsThere() bool { return g.target.kubeconfig != "" || g.target.context != "" }

// choose tells whether the flags fit the StageSet, and fills in the account that an installation has for it.
func (g *grantees) choose(set *v1.StageSet, missing bool) error {
	switch remote := set.Spec.KubeConfig != nil; {
	case !remote && (g.elsewhere() || g.leadsThere() || g.targetUser != ""):
		return errors.New("spec.kubeConfig is not set: there is no other cluster that roles could be for")
	case remote && g.chosen == "":
		// One stream of both would be applied to the same cluster, where accounts would get what they need in the other one.
		return errors.New("spec.kubeConfig is set, and roles are needed in two clusters: print those of the StageSet's own with " +
			"--cluster home, and those of the other one with --cluster target")
	case missing && g.elsewhere() && !g.leadsThere():
		return errors.New("what is missing in the cluster that spec.kubeConfig leads to, only that one knows: say how you reach it " +
			"with --target-kubeconfig or --target-context")
	case !remote:
		set.Spec.ServiceAccountName = cmp.Or(set.Spec.ServiceAccountName, g.defaultAccount)
	}
	return nil
}

// targetCluster is the cluster that spec.kubeConfig leads to, as whoever runs the command sees it; nil without flags that
// lead there.
func (g *grantees) targetCluster(home connection) (*render.Cluster, error) {
	if !g.leadsThere() {
		return nil, nil
	}
	there := g.target
	there.kubeconfig, there.timeout = cmp.Or(there.kubeconfig, home.kubeconfig), home.timeout
	cluster, _, err := there.cluster()
	return cluster, err
}

// grantee is whom roles are for; nil if it is the user that spec.kubeConfig leads to, and nothing says who that is.
func (o *grantOptions) grantee(set *v1.StageSet, need render.Need) (*rbacv1.Subject, error) {
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: set.Namespace, Name: need.Account}
	user := func(name string) *rbacv1.Subject {
		return &rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
	}
	switch named := need.Account != ""; {
	case named && need.Elsewhere: // where no such account has to exist
		return user(username(account)), nil
	case named:
		return &account, nil
	case need.Elsewhere && o.targetUser != "":
		return user(o.targetUser), nil
	case need.Elsewhere && o.missing:
		return nil, errors.New("the user that spec.kubeConfig leads to may lack something: name it with --target-user")
	case need.Elsewhere:
		return nil, nil
	case o.reconciler != "":
		accounts, err := parseAccounts([]string{o.reconciler})
		if err != nil {
			return nil, err
		}
		return &accounts[0], nil
	}
	return nil, errors.New("no account is named for all of it: set spec.serviceAccountName, or the serviceAccountName of each " +
		"stage; or say what your installation does then, with --default-service-account, or, where " +
		"--allow-controller-identity allows it, with --reconciler")
}

// username is what an API server calls somebody.
func username(subject rbacv1.Subject) string {
	if subject.Kind == rbacv1.ServiceAccountKind {
		return "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
	}
	return subject.Name
}

// bindingNote is what is said of roles that nobody is bound to.
func (g *grantees) bindingNote() string {
	if !g.elsewhere() || g.targetUser != "" {
		return ""
	}
	return "\n# Roles without a binding are for the user that spec.kubeConfig leads to: bind it, or name it with --target-user."
}

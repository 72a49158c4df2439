package tenant

import (
	"errors"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// Account names a ServiceAccount of the local cluster. One without a name stands for StageSets in the namespace that name
// none: it is the reconciler's own identity, and on another cluster the user that the kubeConfig leads to.
type Account struct {
	// Namespace is the account's namespace.
	Namespace string
	// Name is the account's name.
	Name string
	// Remote is true for the user that a kubeConfig leads to, who acts as himself. Only Clients.Target sets it, on the
	// account of its client, and only where there is no name.
	Remote bool
}

// IsOwn tells whether no ServiceAccount is named.
func (a Account) IsOwn() bool { return a.Name == "" }

// String is "namespace/name".
func (a Account) String() string { return a.Namespace + "/" + a.Name }

// Identity is the account as messages name it.
func (a Account) Identity() string {
	switch {
	case a.Remote:
		return "the user that kubeConfig leads to"
	case a.IsOwn():
		return "the reconciler itself"
	default:
		return "ServiceAccount " + a.String()
	}
}

// Username is the name of the user that API servers take the account for, as RBAC and audit logs have it. Of one without a
// name it is not known here.
func (a Account) Username() string {
	if a.IsOwn() {
		return a.Identity()
	}
	return "system:serviceaccount:" + a.Namespace + ":" + a.Name
}

// Groups are the groups that API servers put the account in.
func (a Account) Groups() []string {
	if a.IsOwn() {
		return nil
	}
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + a.Namespace, "system:authenticated"}
}

// check refuses what cannot be a name, before it becomes part of a URL.
func (a Account) check() error {
	if err := errors.Join(checkSegment("namespace", a.Namespace), checkSegment("name", a.Name)); err != nil {
		return failure.NewStalled(v1.ReasonInvalidSpec, "service account %q: %w", a, err)
	}
	return nil
}

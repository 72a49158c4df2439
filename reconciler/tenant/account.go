package tenant

import (
	"errors"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// Account names a ServiceAccount of the local cluster. One without a name is the reconciler's own identity, on behalf of
// StageSets in the namespace.
type Account struct {
	// Namespace is the account's namespace.
	Namespace string
	// Name is the account's name.
	Name string
}

// IsOwn tells whether the account is the reconciler's own.
func (a Account) IsOwn() bool { return a.Name == "" }

// String is "namespace/name".
func (a Account) String() string { return a.Namespace + "/" + a.Name }

// Identity is the account as messages name it.
func (a Account) Identity() string {
	if a.IsOwn() {
		return "the reconciler itself"
	}
	return "ServiceAccount " + a.String()
}

// Username is the name of the user that API servers take the account for, as RBAC and audit logs have it. That of the
// reconciler's own is not known here.
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

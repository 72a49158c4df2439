package tenant_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stageset/stageset/reconciler/tenant"
)

// Who an account is to RBAC (T-16); the reconciler's own is nobody whom a binding of a release could be for.
func TestWhoAnAccountIs(t *testing.T) {
	type who struct {
		Identity, Username string
		Groups             []string
	}
	for name, test := range map[string]struct {
		account tenant.Account
		want    who
	}{
		"a ServiceAccount": {tenant.Account{Namespace: "team-a", Name: "deployer"}, who{
			"ServiceAccount team-a/deployer", "system:serviceaccount:team-a:deployer",
			[]string{"system:serviceaccounts", "system:serviceaccounts:team-a", "system:authenticated"},
		}},
		"the reconciler": {tenant.Account{Namespace: "team-a"}, who{"the reconciler itself", "the reconciler itself", nil}},
	} {
		t.Run(name, func(t *testing.T) {
			got := who{test.account.Identity(), test.account.Username(), test.account.Groups()}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("account (-want +got):\n%s", diff)
			}
		})
	}
}

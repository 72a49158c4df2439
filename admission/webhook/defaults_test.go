package webhook

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/builtin"
)

// Without a policy that fills in defaults nothing is read, unless it says what was defaulted: that has to be true.
func TestDefaultReadsWhatMayChange(t *testing.T) {
	const validates = "[{metadata: {name: a}, spec: {validations: [{name: r, expression: 'false', message: no}]}}]"
	raw := func(text string) runtime.RawExtension { return runtime.RawExtension{Raw: []byte(text)} }
	const claims = `{"metadata":{"annotations":{"stages.metio.wtf/defaulted-by":"spec.interval=p"}}}`
	for name, test := range map[string]struct {
		policies    string
		object, old runtime.RawExtension
		read        bool
	}{
		"nothing to default":      {policies: validates, object: raw("{}")},
		"a policy that defaults":  {policies: rules, object: raw("{}"), read: true},
		"a claim":                 {policies: validates, object: raw(claims), read: true},
		"a claim that was stored": {policies: validates, object: raw("{}"), old: raw(claims), read: true},
	} {
		t.Run(name, func(t *testing.T) {
			stageSets := newStageSets(t)
			set := compile(t, test.policies)
			stageSets.Policies = func() Policies { return set }
			request := newRequest(t, "open", nil, nil)
			request.Object, request.OldObject = test.object, test.old
			request.Object.Raw = append(request.Object.Raw, '}') // which nobody can read
			if got := stageSets.Default(t.Context(), request); got.Allowed == test.read {
				t.Errorf("allowed is %t: %v", got.Allowed, got.Result)
			}
		})
	}
}

// TestValidateDefaults: the mutating webhook may not have been asked (failurePolicy Ignore), and then the reconciler fills in
// the account. Who writes the StageSet has to be somebody who may use it all the same.
func TestValidateDefaults(t *testing.T) {
	const bare, labelled = "spec: {stages: []}", "{metadata: {labels: {a: b}}, spec: {stages: []}}"
	for name, test := range map[string]struct {
		config       policies.Config
		old, updated string
		forbidden    bool
	}{
		"nothing to default":    {updated: bare},
		"a default account":     {config: policies.Config{DefaultServiceAccount: "deployer"}, updated: bare, forbidden: true},
		"an update of the spec": {policies.Config{DefaultServiceAccount: "deployer"}, "spec: {interval: 1h}", bare, true},
		"an update of a label":  {policies.Config{DefaultServiceAccount: "deployer"}, bare, labelled, false},
	} {
		t.Run(name, func(t *testing.T) {
			test.config.PlatformNamespaces = []string{policies.AllNamespaces}
			set, err := builtin.Compile(t.Context(), test.config)
			if err != nil {
				t.Fatal(err)
			}
			stageSets := newStageSets(t)
			stageSets.Policies = func() Policies { return set }
			stageSets.Authorizer = policies.NewAuthorizer(func(context.Context, *authorizationv1.SubjectAccessReview) error {
				return nil // which allows nothing
			})
			request := newRequest(t, "open", object(t, test.old), object(t, test.updated))
			request.UserInfo.Username = "joe"
			got := stageSets.Validate(t.Context(), request)
			var want []string
			if test.forbidden {
				want = []string{"spec.serviceAccountName: author-may-use-service-account/accounts: joe may neither impersonate nor " +
					"create tokens for ServiceAccount deployer in namespace open: name another account, or have one of both granted"}
			}
			var refused []string
			if !got.Allowed {
				for _, cause := range got.Result.Details.Causes {
					refused = append(refused, cause.Field+": "+cause.Message)
				}
			}
			if diff := cmp.Diff(want, refused); diff != "" || got.Allowed == test.forbidden {
				t.Errorf("allowed is %t, causes (-want +got):\n%s", got.Allowed, diff)
			}
		})
	}
}

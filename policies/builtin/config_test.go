package builtin_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/builtin"
)

// worst breaks every built-in rule that refuses.
func worst() policies.Input {
	in := request(2, true)
	in.Object.Object["spec"].(map[string]any)["kubeConfig"] = map[string]any{}
	in.Object.Object["spec"].(map[string]any)["dependsOn"] = []any{
		map[string]any{"name": "app"},
		map[string]any{"name": "app", "namespace": "team-a"},
		map[string]any{"name": "other", "namespace": "team-b"},
	}
	first := in.Object.Object["spec"].(map[string]any)["stages"].([]any)[0].(map[string]any)
	first["readyChecks"] = map[string]any{"checks": []any{
		map[string]any{"apiVersion": "v1", "kind": "Service", "name": "web", "namespace": "team-b"},
	}}
	return in
}

// TestAllViolations: what a tenant reads who gets everything wrong. The reconciler says the same, in the same words (P-01).
func TestAllViolations(t *testing.T) {
	set, err := builtin.Compile(t.Context(), policies.Config{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"spec.kubeConfig: kubeconfig-one-reference/one-reference: neither secretRef nor configMapRef is set: " +
			"set one of them, or remove kubeConfig to apply to this cluster",
		"spec.dependsOn[*].namespace: no-cross-namespace-refs/depends-on: depends on team-b/other; " +
			"a StageSet can only depend on StageSets in its own namespace, team-a",
		"spec.stages[*].readyChecks.checks[*].namespace: no-cross-namespace-refs/ready-checks: stage stage-0 waits for " +
			"Service team-b/web; a stage can only wait for objects in the namespace of the StageSet, team-a, or in its own " +
			"targetNamespace",
		"spec.stages[*].sourceRef.namespace: no-cross-namespace-refs/sources: stage stage-0 reads GitRepository " +
			"flux-system/app, stage stage-1 reads GitRepository flux-system/app; sources have to be in the namespace of the " +
			"StageSet: create them in team-a and remove sourceRef.namespace",
		"spec.dependsOn: no-self-dependency/named-twice: named twice in dependsOn, without a namespace and with the own one, " +
			"team-a: app; remove one of each",
		"spec.dependsOn: no-self-dependency/self: a StageSet that depends on itself never starts; remove app from dependsOn",
		"spec.serviceAccountName: service-account-required/depends-on: dependsOn is read as spec.serviceAccountName, " +
			"which is not set; set it to a ServiceAccount that may get those StageSets",
		"spec.serviceAccountName: service-account-required/kubeconfig: kubeConfig is read as spec.serviceAccountName, " +
			"which is not set; set it to the ServiceAccount to use on the other cluster",
		"spec.serviceAccountName: service-account-required/stages: stages without an account: stage-0, stage-1; " +
			"set spec.serviceAccountName, or serviceAccountName of these stages, to a ServiceAccount in namespace team-a",
	}
	inStore := worst()
	inStore.Request = nil
	for name, in := range map[string]policies.Input{"request": worst(), "stored": inStore} {
		t.Run(name, func(t *testing.T) {
			decision := set.Validate(t.Context(), in)
			var got []string
			for _, v := range decision.Denied {
				got = append(got, v.Field+": "+v.String())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("denied (-want +got):\n%s", diff)
			}
			if len(decision.Warned)+len(decision.Audited)+len(decision.Ignored) > 0 {
				t.Errorf("more was said: %+v", decision)
			}
		})
	}
}

// TestLargest: the rules stay within their budgets for the largest StageSet that the schema admits.
func TestLargest(t *testing.T) {
	set, err := builtin.Compile(t.Context(), policies.Config{})
	if err != nil {
		t.Fatal(err)
	}
	in := request(64, true)
	var dependencies []any
	for range 32 {
		name := strings.Repeat("x", 200) + string(rune('a'+len(dependencies)/2))
		dependencies = append(dependencies, map[string]any{"name": name, "namespace": ""},
			map[string]any{"name": name, "namespace": "team-a"})
	}
	in.Object.Object["spec"].(map[string]any)["dependsOn"] = dependencies
	var checks []any
	for i := range 64 {
		name := strings.Repeat("x", 240) + strconv.Itoa(i)
		checks = append(checks, map[string]any{"apiVersion": "v1", "kind": "Service", "name": name, "namespace": "team-b"})
	}
	stages := in.Object.Object["spec"].(map[string]any)["stages"].([]any)
	for i, stage := range stages {
		stage.(map[string]any)["readyChecks"] = map[string]any{"checks": checks}
		if i < len(stages)-1 { // the last one's are refused, so that all before are looked at
			stage.(map[string]any)["targetNamespace"] = "team-b"
		}
	}
	for _, v := range set.Validate(t.Context(), in).Denied {
		if strings.Contains(v.Message, "cannot be evaluated") {
			t.Error(v)
		}
	}
}

// TestSwitches: each rule does what the config says, and nothing else changes.
func TestSwitches(t *testing.T) {
	rules := map[string]bool{
		"kubeconfig-one-reference": true, "no-cross-namespace-refs": true, "no-self-dependency": true,
		"service-account-required": true,
	}
	for rule := range rules {
		for _, setting := range []policies.Switch{
			policies.SwitchDeny, policies.SwitchWarn, policies.SwitchAudit, policies.SwitchOff,
		} {
			t.Run(rule+"="+string(setting), func(t *testing.T) {
				config := policies.Config{Rules: map[string]policies.Switch{rule: setting}}
				set, err := builtin.Compile(t.Context(), config)
				if err != nil {
					t.Fatal(err)
				}
				decision := set.Validate(t.Context(), worst())
				got := map[policies.Switch]map[string]bool{
					policies.SwitchDeny:  policiesOf(decision.Denied),
					policies.SwitchWarn:  policiesOf(decision.Warned),
					policies.SwitchAudit: policiesOf(decision.Audited),
				}
				want := map[policies.Switch]map[string]bool{
					policies.SwitchDeny: {}, policies.SwitchWarn: {}, policies.SwitchAudit: {},
				}
				for other := range rules {
					want[policies.SwitchDeny][other] = true
				}
				if setting != policies.SwitchDeny {
					delete(want[policies.SwitchDeny], rule)
				}
				if setting != policies.SwitchOff {
					want[setting][rule] = true
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("policies that deny, warn and audit (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func policiesOf(violations []policies.Violation) map[string]bool {
	names := map[string]bool{}
	for _, v := range violations {
		names[v.Policy] = true
	}
	return names
}

// TestConfig: what the config says about accounts and namespaces reaches the rules.
func TestConfig(t *testing.T) {
	const annotation = "stages.metio.wtf/default-service-account"
	for name, test := range map[string]struct {
		config policies.Config
		want   string
		denied bool
	}{
		"nothing":            {policies.Config{}, "", true},
		"a default":          {policies.Config{DefaultServiceAccount: "deployer"}, "deployer", false},
		"a trusted key":      {policies.Config{TrustNamespaceKeys: true}, "of-namespace", false},
		"both":               {policies.Config{DefaultServiceAccount: "deployer", TrustNamespaceKeys: true}, "of-namespace", false},
		"a platform":         {policies.Config{PlatformNamespaces: []string{"team-a"}}, "", false},
		"a single tenant":    {policies.Config{PlatformNamespaces: []string{"*"}}, "", false},
		"another's platform": {policies.Config{PlatformNamespaces: []string{"team-b"}}, "", true},
		"switched off": {policies.Config{
			DefaultServiceAccount: "deployer", Rules: map[string]policies.Switch{"default-service-account": policies.SwitchOff},
		}, "", true},
		"switched on": {policies.Config{
			DefaultServiceAccount: "deployer", Rules: map[string]policies.Switch{"default-service-account": policies.SwitchOn},
		}, "deployer", false},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := builtin.Compile(t.Context(), test.config)
			if err != nil {
				t.Fatal(err)
			}
			in := request(1, false)
			delete(in.Object.Object["spec"].(map[string]any), "serviceAccountName")
			in.Namespace.Annotations = map[string]string{annotation: "of-namespace"}
			in.Object, err = set.Default(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := in.Object.Object["spec"].(map[string]any)["serviceAccountName"].(string)
			if got != test.want || set.Defaults() != (test.want != "") {
				t.Errorf("the account is %q, want %q; anything is defaulted: %t", got, test.want, set.Defaults())
			}
			denied := set.Validate(t.Context(), in).Denied
			if got := len(denied) > 0; got != test.denied {
				t.Errorf("denied is %t, want %t: %v", got, test.denied, denied)
			}
		})
	}
}

// TestConfigErrors: a rule that does not exist, or cannot be set so, is refused by its name.
func TestConfigErrors(t *testing.T) {
	config := policies.Config{Rules: map[string]policies.Switch{
		"no-such-rule":            policies.SwitchDeny,
		"default-service-account": policies.SwitchWarn,
		"no-self-dependency":      policies.SwitchOn,
	}}
	_, err := builtin.Compile(t.Context(), config)
	if err == nil {
		t.Fatal("there is no error")
	}
	want := `policy config: rules.default-service-account: it fills in defaults, so it is On or Off, not Warn
rules.no-self-dependency: it refuses, so it is Deny, Warn, Audit or Off, not On
rules: there is no rule "no-such-rule"; there are author-may-use-service-account, bounded-durations, ` +
		`default-service-account, known-sources, kubeconfig-one-reference, no-cross-namespace-refs, ` +
		`no-privilege-escalation-manifests, no-self-dependency, reserved-namespace-keys, reserved-namespaces, ` +
		`service-account-required, verified-source`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

// TestOffByDefault: a rule that is off is evaluated only where the config switches it on.
func TestOffByDefault(t *testing.T) {
	in := policies.SourceInput{StageSet: request(1, false).Object, Stage: "stage-0", Namespace: request(1, false).Namespace}
	for name, test := range map[string]struct {
		rules          map[string]policies.Switch
		denied, warned int
	}{
		"unset": {nil, 0, 0},
		"Deny":  {map[string]policies.Switch{"verified-source": policies.SwitchDeny}, 1, 0},
		"Warn":  {map[string]policies.Switch{"verified-source": policies.SwitchWarn}, 0, 1},
		"Off":   {map[string]policies.Switch{"verified-source": policies.SwitchOff}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := builtin.Compile(t.Context(), policies.Config{Rules: test.rules})
			if err != nil {
				t.Fatal(err)
			}
			got := set.ValidateSource(t.Context(), in)
			if len(got.Denied) != test.denied || len(got.Warned) != test.warned {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestAuthor: a defaulted account counts as one that is written; the reconciler does not evaluate the rule.
func TestAuthor(t *testing.T) {
	set, err := builtin.Compile(t.Context(), policies.Config{
		DefaultServiceAccount: "deployer", TrustedRequesters: []string{"gitops"},
	})
	if err != nil {
		t.Fatal(err)
	}
	nobody := policies.NewAuthorizer(func(context.Context, *authorizationv1.SubjectAccessReview) error { return nil })
	for name, test := range map[string]struct {
		change func(*policies.Input)
		want   []string
	}{
		"somebody": {func(*policies.Input) {}, []string{"author-may-use-service-account/accounts: joe may neither impersonate nor " +
			"create tokens for ServiceAccount deployer in namespace team-a: name another account, or have one of both granted"}},
		"who is trusted": {func(in *policies.Input) { in.Request.UserInfo.Username = "gitops" }, nil},
		"stored":         {func(in *policies.Input) { in.Request = nil }, nil},
		"nobody to ask": {func(in *policies.Input) { in.Authorizer = nil }, []string{"author-may-use-service-account/accounts: " +
			"cannot be evaluated: variables.forbidden reads authorizer, but there is no authorizer to ask here"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := request(1, false)
			delete(in.Object.Object["spec"].(map[string]any), "serviceAccountName")
			in.Request.UserInfo.Username, in.Authorizer = "joe", nobody
			test.change(&in)
			in.Object, err = set.Default(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, v := range set.Validate(t.Context(), in).Denied {
				got = append(got, v.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("denied (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPoliciesAreCopies: nobody can change the built-in policies for the others.
func TestPoliciesAreCopies(t *testing.T) {
	changed := load(t)
	changed[0].Spec.MatchConditions = nil
	changed[0].Name = "changed"
	if diff := cmp.Diff("author-may-use-service-account", load(t)[0].Name); diff != "" {
		t.Errorf("the first name (-want +got):\n%s", diff)
	}
}

// TestNoCrossNamespaceRefs: where no namespace is left, none is, whoever it belongs to.
func TestNoCrossNamespaceRefs(t *testing.T) {
	const rule = "no-cross-namespace-refs"
	for name, test := range map[string]struct {
		config  policies.Config
		denied  bool
		invalid string
	}{
		"a tenant":             {policies.Config{}, true, ""},
		"a platform namespace": {policies.Config{PlatformNamespaces: []string{"team-a"}}, false, ""},
		"a platform namespace, confined": {
			policies.Config{PlatformNamespaces: []string{"team-a"}, NoCrossNamespaceRefs: true}, true, "",
		},
		"a single tenant, confined": {
			policies.Config{PlatformNamespaces: []string{policies.AllNamespaces}, NoCrossNamespaceRefs: true}, true, "",
		},
		"confined, and not": {
			policies.Config{Rules: map[string]policies.Switch{rule: policies.SwitchOff}, NoCrossNamespaceRefs: true}, false,
			"policy config: noCrossNamespaceRefs: has no effect with rules.no-cross-namespace-refs: Off: it wants Deny",
		},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := builtin.Compile(t.Context(), test.config)
			if diff := cmp.Diff(test.invalid, message(err)); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if err == nil && policiesOf(set.Validate(t.Context(), worst()).Denied)[rule] != test.denied {
				t.Errorf("denied is not %t", test.denied)
			}
		})
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

package policies_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// TestTenantByLabel: a Namespace says that it is no tenant's where that is trusted, and only with the right value; a set that
// policies were added to knows it too, and of sources and objects alike.
func TestTenantByLabel(t *testing.T) {
	platform := map[string]string{v1.LabelTenancy: v1.TenancyPlatform}
	for name, test := range map[string]struct {
		trusted   bool
		namespace *corev1.Namespace
		want      bool
	}{
		"trusted":                       {true, namespace("team-a", platform), false},
		"not trusted":                   {false, namespace("team-a", platform), true},
		"another value":                 {true, namespace("team-a", map[string]string{v1.LabelTenancy: "tenant"}), true},
		"no label":                      {true, namespace("team-a", nil), true},
		"a Namespace that is not known": {true, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			list := []v1alpha1.StageSetPolicy{
				rule(t, "p", "!tenant", ""), rule(t, "s", "!tenant", "target: Source"), rule(t, "m", "!tenant", "target: Manifest"),
			}
			set, err := policies.Compile(t.Context(), nil, policies.Options{TrustNamespaceKeys: test.trusted})
			if err != nil {
				t.Fatal(err)
			}
			if set, err = set.With(t.Context(), list, nil); err != nil {
				t.Fatal(err)
			}
			in := policies.SourceInput{StageSet: stageSet(t, ""), Stage: "web", Namespace: test.namespace}
			for about, decision := range map[string]policies.Decision{
				"the StageSet": set.Validate(t.Context(), policies.Input{Object: stageSet(t, ""), Namespace: test.namespace}),
				"a source":     set.ValidateSource(t.Context(), in),
				"an object": set.ValidateManifest(t.Context(),
					policies.ManifestInput{SourceInput: in, Object: stageSet(t, "")}),
			} {
				if got := len(decision.Denied) > 0; got != test.want {
					t.Errorf("about %s, tenant is %t, want %t", about, got, test.want)
				}
			}
		})
	}
}

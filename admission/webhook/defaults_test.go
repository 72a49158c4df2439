package webhook

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
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

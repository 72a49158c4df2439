package chart_test

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
)

// What each mode renders is what an API server takes, without a field that it does not know and with CEL that compiles.
func TestModesAreAccepted(t *testing.T) {
	c := cluster.Shared(t)
	strict := client.WithFieldValidation(c.Client(t), metav1.FieldValidationStrict)
	for _, name := range []string{namespace, "team-a", "team-b", "policies"} {
		c.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}")
		t.Cleanup(func() {
			if err := c.Client(t).Delete(uncancelled{t}.Context(), cluster.Ref("v1", "Namespace", "", name)); err != nil {
				t.Error(err)
			}
		})
	}
	monitoring := []string{"ServiceMonitor", "PrometheusRule"} // whose CRDs are not here
	for mode, values := range modes {
		t.Run(mode, func(t *testing.T) {
			for _, object := range render(t, values+"\ncrds: {install: false}\n") {
				if slices.Contains(monitoring, object.GetKind()) {
					continue
				}
				if err := strict.Create(t.Context(), object, client.DryRunAll); err != nil {
					t.Errorf("%s: %v", describe(object), err)
				}
			}
		})
	}
}

package webhook

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/stageset/stageset/policies"
)

// What policies were decided with is in the audit event, whatever they said (P-15).
func TestTheAuditEventSaysWhatDecided(t *testing.T) {
	decision := policies.Decision{
		Audited:          []policies.Violation{{Policy: "few", Rule: "stages", Message: "too many"}},
		AuditAnnotations: map[string]string{"few/limit": "5"},
		Params: []policies.Param{
			{Policy: "few", Kind: "ConfigMap", Namespace: "team-a", Name: "limits", ResourceVersion: "7"},
			{Policy: "other", Kind: "Limit", Name: "all", ResourceVersion: "8"},
		},
	}
	want := map[string]string{
		"violations":  "few/stages: too many",
		"annotations": `{"few/limit":"5"}`,
		"params":      "few: ConfigMap team-a/limits, resourceVersion 7\nother: Limit all, resourceVersion 8",
	}
	if diff := cmp.Diff(want, respond(admission.Request{}, decision).AuditAnnotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if got := respond(admission.Request{}, policies.Decision{}).AuditAnnotations; len(got) > 0 {
		t.Errorf("annotations of nothing: %v", got)
	}
}

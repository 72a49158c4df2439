package tenant_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stageset/stageset/reconciler/tenant"
)

// I8: admission is shown the live object that is to be deleted, and may quote it. Which policy refuses is said all the same,
// and so is what the account may not do.
func TestDenialsOfDeletesDoNotQuoteSecrets(t *testing.T) {
	secret := schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	const (
		webhook  = `admission webhook "keep.example.com" denied the request`
		policy   = `secrets "app" is forbidden: ValidatingAdmissionPolicy 'keep' with binding 'all' denied request`
		mayNot   = `secrets "app" is forbidden: User "system:serviceaccount:payments:deployer" cannot delete resource "secrets"`
		withheld = "; what it says is withheld because it may quote values of the Secret"
	)
	for name, test := range map[string]struct {
		kind          schema.GroupVersionKind
		message, want string
	}{
		"a webhook":                 {secret, webhook + ": hunter2 is in use", webhook + withheld},
		"a webhook without reason":  {secret, webhook + " without explanation", webhook + withheld},
		"a policy":                  {secret, policy + ": hunter2 is in use", policy + withheld},
		"a missing permission":      {secret, mayNot, mayNot},
		"a webhook about a content": {configMap, webhook + ": it is in use", webhook + ": it is in use"},
	} {
		t.Run(name, func(t *testing.T) {
			server := newFaulty(t)
			server.serve = func(w http.ResponseWriter, _ *http.Request, _ string) {
				body, err := json.Marshal(metav1.Status{
					TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
					Message: test.message, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden,
				})
				if err != nil {
					t.Error(err)
				}
				answer(w, http.StatusForbidden, string(body))
			}
			client := clientFor(t, newClients(t, tenant.Options{Config: server.config()}), deployer)
			_, err := client.Delete(t.Context(), test.kind, "payments", "app",
				tenant.DeleteOptions{UID: "1", ResourceVersion: "2"})
			if err == nil {
				t.Fatal("deleted")
			}
			if diff := cmp.Diff(test.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

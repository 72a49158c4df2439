package prune

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/ownership"
)

// I3, I4, T-69: what is deleted is the object that was applied, and no other of the name.
func TestOurs(t *testing.T) {
	owner := ownership.Owner{Namespace: "team-a", Name: "shop"}
	cases := map[string]struct {
		uid, recorded   types.UID
		resourceVersion string
		manager         string
		want            bool
	}{
		"applied":                               {uid: "1", recorded: "1", resourceVersion: "7", want: true},
		"another object of the name":            {uid: "2", recorded: "1", resourceVersion: "7", manager: owner.FieldManager()},
		"written ahead, then made":              {uid: "1", manager: owner.FieldManager(), want: true},
		"written ahead, made by somebody else":  {uid: "1", manager: "kubectl"},
		"was to be adopted, and was":            {uid: "1", recorded: "1", manager: owner.FieldManager(), want: true},
		"was to be adopted, and never was":      {uid: "1", recorded: "1", manager: "kubectl"},
		"was to be adopted, replaced meanwhile": {uid: "2", recorded: "1", manager: owner.FieldManager()},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			live := &unstructured.Unstructured{Object: map[string]any{}}
			live.SetUID(tc.uid)
			live.SetManagedFields([]metav1.ManagedFieldsEntry{
				{Manager: tc.manager, Operation: metav1.ManagedFieldsOperationApply},
			})
			entry := v1.InventoryEntry{UID: tc.recorded, ResourceVersion: tc.resourceVersion}
			if got := ours(live, owner, entry); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

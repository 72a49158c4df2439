package apply

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stageset/stageset/reconciler/ownership"
	"github.com/stageset/stageset/reconciler/preflight"
	"github.com/stageset/stageset/reconciler/tenant"
)

// vacate deletes the live object that an object has to take the place of, with its dependents first. It never waits: a later
// call looks again. deleted is true if this call has deleted it.
func (w *writer) vacate(ctx context.Context, object *preflight.Object) (free, deleted bool, err error) {
	key, gvk := object.Key(), object.Desired().GroupVersionKind()
	live, err := w.stage.Target().Get(ctx, gvk, key.Namespace, key.Name)
	switch {
	case apierrors.IsNotFound(err):
		return true, false, nil
	case err != nil:
		return false, false, err
	case live.GetUID() != object.Recreates():
		return true, false, nil // there is another one already
	case live.GetDeletionTimestamp() != nil:
		return false, false, nil
	case ownership.Protected(live):
		return false, false, preflight.ErrProtected // since the preflight
	}
	free, err = w.stage.Target().Delete(ctx, gvk, key.Namespace, key.Name, tenant.DeleteOptions{
		UID: live.GetUID(), ResourceVersion: live.GetResourceVersion(), DependentsFirst: true,
	})
	if apierrors.IsConflict(err) {
		return false, false, nil // somebody wrote it since it was read
	}
	return free, err == nil, err
}

package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/release"
)

// reportRecreating says which objects the pass has deleted to make them anew.
func (r *Reconciler) reportRecreating(ctx context.Context, set *v1.StageSet, deleted release.Recreating) {
	if deleted.Text == "" {
		return
	}
	log.FromContext(ctx).Info("deleted to be made anew", "objects", deleted.Text)
	first := deleted.First
	related := &corev1.ObjectReference{Kind: first.Kind, Namespace: first.Namespace, Name: first.Name}
	r.Events.Eventf(set, related, corev1.EventTypeNormal, v1.EventRecreating, "Recreate", "%s",
		note("deleted, to be made anew with a field that cannot be changed: "+deleted.Text))
}

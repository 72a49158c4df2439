package controller

import (
	"context"
	"fmt"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/stageset/stageset/api/v1"
)

var sourceKinds = []v1.SourceKind{
	v1.SourceKindExternalArtifact, v1.SourceKindGitRepository, v1.SourceKindOCIRepository, v1.SourceKindBucket,
}

// discoveryPause is how late a kind of source is noticed whose definition is installed while the reconciler runs. To ask for
// it costs next to nothing, and to watch definitions would need a permission.
const discoveryPause = 15 * time.Second

// watchSources has StageSets woken by their sources, of each kind as soon as the cluster serves it.
func (r *Reconciler) watchSources(ctx context.Context, mgr ctrl.Manager, watching controller.Controller) error {
	missing, err := r.watchServed(ctx, mgr, watching, sourceKinds)
	if err != nil || len(missing) == 0 {
		return err
	}
	mgr.GetLogger().Info("kinds of sources are not served; they are watched once they are", "kinds", missing)
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		_ = wait.PollUntilContextCancel(ctx, discoveryPause, false, func(context.Context) (bool, error) {
			if missing, err = r.watchServed(ctx, mgr, watching, missing); err != nil {
				mgr.GetLogger().Error(err, "cannot watch kinds of sources yet")
			}
			return len(missing) == 0, nil
		})
		return nil // it ends when all are watched, or with the process
	}))
}

// watchServed watches those of the kinds that the cluster serves, and returns the others.
func (r *Reconciler) watchServed(
	ctx context.Context, mgr ctrl.Manager, watching controller.Controller, kinds []v1.SourceKind,
) ([]v1.SourceKind, error) {
	var missing []v1.SourceKind
	for i, kind := range kinds {
		gvk := sourcev1.GroupVersion.WithKind(string(kind))
		_, err := mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		if meta.IsNoMatchError(err) {
			missing = append(missing, kind)
			continue
		}
		if err == nil { // before it leads: see SetupWithManager
			_, err = mgr.GetCache().GetInformer(ctx, anySource(gvk), cache.BlockUntilSynced(false))
		}
		if err == nil {
			err = watching.Watch(source.Kind(mgr.GetCache(), anySource(gvk),
				handler.EnqueueRequestsFromMapFunc(r.consumers(kind)), predicate.Funcs{UpdateFunc: newArtifact}))
		}
		if err != nil {
			return append(missing, kinds[i:]...), fmt.Errorf("watch sources of kind %s: %w", kind, err)
		}
	}
	return missing, nil
}

// anySource is what sources of a kind are watched as. Flux's own types cannot hold everything that its schemas admit, such as
// a duration that overflows, and one object that cannot be decoded would end the watch for all tenants.
func anySource(gvk schema.GroupVersionKind) client.Object {
	source := &unstructured.Unstructured{}
	source.SetGroupVersionKind(gvk)
	return source
}

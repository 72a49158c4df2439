package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/inventory/store"
	"github.com/stageset/stageset/reconciler/pipeline"
)

// Field indexes on StageSets: what wakes them.
const (
	indexSource     = "spec.stages.sourceRef"
	indexDependency = "spec.dependsOn"
)

var indexes = map[string]client.IndexerFunc{indexSource: sourcesOf, indexDependency: dependenciesOf}

// What is in namespaces has a role of its own: it is bound in each namespace that is watched, or in the whole cluster.
//
// +kubebuilder:rbac:groups=stages.metio.wtf,resources=stagesets,verbs=list;watch;patch,roleName=stageset-reconciler-watched
// +kubebuilder:rbac:groups=stages.metio.wtf,resources=stagesets/status,verbs=patch,roleName=stageset-reconciler-watched
// +kubebuilder:rbac:groups=stages.metio.wtf,resources=stageinventories,verbs=list;watch;create;update;delete,roleName=stageset-reconciler-watched
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=externalartifacts;gitrepositories;ocirepositories;buckets,verbs=list;watch,roleName=stageset-reconciler-watched
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,roleName=stageset-reconciler-watched
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// SetupWithManager adds the controller with its indexes and watches; workers are its workers and their queue. Sources are
// watched with the reconciler's own identity, only to be woken: what is applied is read as the tenant.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, workers controller.Options) error {
	indexer := mgr.GetFieldIndexer()
	for field, extract := range indexes {
		if err := indexer.IndexField(ctx, &v1.StageSet{}, field, extract); err != nil {
			return fmt.Errorf("index StageSets by %s: %w", field, err)
		}
	}
	for field, extract := range map[string]client.IndexerFunc{
		store.IndexStageSet: store.StageSetOf, store.IndexObject: store.ObjectsOf,
	} {
		if err := indexer.IndexField(ctx, &v1.StageInventory{}, field, extract); err != nil {
			return fmt.Errorf("index StageInventories by %s: %w", field, err)
		}
	}
	// Who does not lead yet has the same caches, which its controller would begin with only then.
	if _, err := mgr.GetCache().GetInformer(ctx, &corev1.Namespace{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watch Namespaces: %w", err)
	}
	policies, err := r.policySource(mgr)
	if err != nil {
		return fmt.Errorf("watch policies: %w", err)
	}
	build := ctrl.NewControllerManagedBy(mgr).
		Named("stageset").
		For(&v1.StageSet{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: wanted})).
		Watches(&v1.StageSet{}, handler.EnqueueRequestsFromMapFunc(r.dependants), builder.WithPredicates(
			predicate.Funcs{UpdateFunc: becameReady, CreateFunc: func(event.CreateEvent) bool { return false }})).
		Watches(&v1.StageInventory{}, handler.EnqueueRequestsFromMapFunc(ownerOf), builder.WithPredicates(
			predicate.NewPredicateFuncs(func(obj client.Object) bool { return !obj.GetDeletionTimestamp().IsZero() }))).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.residents), builder.WithPredicates(
			predicate.Funcs{UpdateFunc: relabelled, DeleteFunc: func(event.DeleteEvent) bool { return false }})).
		WatchesRawSource(policies).
		WatchesRawSource(r.Waits.source()).
		WithOptions(workers)
	watching, err := build.Build(r)
	if err != nil {
		return err
	}
	return r.watchSources(ctx, mgr, watching)
}

// asking are the annotations of a StageSet that a pass acts on.
var asking = []string{v1.AnnotationRequestedAt, v1.AnnotationReconcileStage, v1.AnnotationAllowMassPrune}

// requests is what the annotations of a StageSet ask for.
func requests(set *v1.StageSet) string {
	values := make([]string, 0, len(asking))
	for _, key := range asking {
		values = append(values, set.Annotations[key])
	}
	return strings.Join(values, "\x00")
}

// wanted is true for updates that ask for a pass: of the spec, of the labels, which policies select and judge by, of the
// deletion, and of annotations that are acted on.
func wanted(update event.UpdateEvent) bool {
	return update.ObjectOld.GetGeneration() != update.ObjectNew.GetGeneration() ||
		!maps.Equal(update.ObjectOld.GetLabels(), update.ObjectNew.GetLabels()) ||
		update.ObjectOld.GetDeletionTimestamp().IsZero() != update.ObjectNew.GetDeletionTimestamp().IsZero() ||
		slices.ContainsFunc(asking, func(key string) bool {
			return update.ObjectOld.GetAnnotations()[key] != update.ObjectNew.GetAnnotations()[key]
		})
}

// becameReady is true for updates of a StageSet that those who depend on it wait for. A dependency that was held keeps
// Ready=True at the generation that it was earned at; that it has caught up is what the condition's own generation tells.
func becameReady(update event.UpdateEvent) bool {
	old, isOld := update.ObjectOld.(*v1.StageSet)
	now, isNow := update.ObjectNew.(*v1.StageSet)
	return isOld && isNow && (readyAt(old) != readyAt(now) ||
		old.Status.ObservedGeneration != now.Status.ObservedGeneration ||
		!equality.Semantic.DeepEqual(old.Status.LastAppliedRevisions, now.Status.LastAppliedRevisions))
}

// readyAt is the generation that a StageSet is Ready at; 0 if it is not.
func readyAt(set *v1.StageSet) int64 {
	ready := meta.FindStatusCondition(set.Status.Conditions, v1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue {
		return 0
	}
	return ready.ObservedGeneration
}

// relabelled is true for updates of a Namespace that change what policies select it by, or read of it.
func relabelled(update event.UpdateEvent) bool {
	return !maps.Equal(update.ObjectOld.GetLabels(), update.ObjectNew.GetLabels()) ||
		!maps.Equal(update.ObjectOld.GetAnnotations(), update.ObjectNew.GetAnnotations())
}

// newArtifact is true for updates of a source that change what a StageSet can get from it, or whose it is.
func newArtifact(update event.UpdateEvent) bool {
	old, isOld := update.ObjectOld.(*unstructured.Unstructured)
	now, isNow := update.ObjectNew.(*unstructured.Unstructured)
	if !isOld || !isNow {
		return true
	}
	return producerOf(old) != producerOf(now) || slices.ContainsFunc([]string{"digest", "revision", "url"}, func(field string) bool {
		before, _, _ := unstructured.NestedString(old.Object, "status", "artifact", field)
		after, _, _ := unstructured.NestedString(now.Object, "status", "artifact", field)
		return before != after
	})
}

// sourcesOf are the values of indexSource: "<kind>/<namespace>/<name>" of every stage's source, or of its producer.
func sourcesOf(obj client.Object) []string {
	set := obj.(*v1.StageSet)
	keys := make([]string, 0, len(set.Spec.Stages))
	for _, stage := range set.Spec.Stages {
		ref := stage.SourceRef.In(set.Namespace)
		keys = append(keys, sourceKey(ref.Kind, ref.Namespace, ref.Name))
	}
	return keys
}

func sourceKey(kind v1.SourceKind, namespace, name string) string {
	return string(kind) + "/" + namespace + "/" + name
}

// dependenciesOf are the values of indexDependency: "<namespace>/<name>" of every StageSet in dependsOn.
func dependenciesOf(obj client.Object) []string {
	dependencies := pipeline.DependenciesOf(obj.(*v1.StageSet))
	keys := make([]string, 0, len(dependencies))
	for _, name := range dependencies {
		keys = append(keys, name.String())
	}
	return keys
}

// Namespaces are those that are watched; none is all of them. The cache has nothing of others, and to ask it for that is an
// error.
type Namespaces []string

// watched tells whether a namespace is.
func (n Namespaces) watched(namespace string) bool {
	return len(n) == 0 || slices.Contains(n, namespace)
}

// Graph is what StageSets depend on, as a cache has them.
type Graph struct {
	// StageSets reads from the cache.
	StageSets client.Reader
	// Namespaces are those that the cache has.
	Namespaces Namespaces
}

// DependsOn implements pipeline.Graph. What a StageSet in a namespace that is not watched depends on is not known here.
func (g Graph) DependsOn(ctx context.Context, name types.NamespacedName) ([]types.NamespacedName, error) {
	if !g.Namespaces.watched(name.Namespace) {
		return nil, nil
	}
	var set v1.StageSet
	if err := g.StageSets.Get(ctx, name, &set); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return pipeline.DependenciesOf(&set), nil
}

// consumers maps a source to the StageSets that use it, in whatever namespace they are, also by the name of its producer.
func (r *Reconciler) consumers(kind v1.SourceKind) handler.MapFunc {
	return func(ctx context.Context, obj client.Object) []reconcile.Request {
		requests := r.indexed(ctx, indexSource, sourceKey(kind, obj.GetNamespace(), obj.GetName()))
		if artifact, ok := obj.(*unstructured.Unstructured); ok && kind == v1.SourceKindExternalArtifact {
			if producer := producerOf(artifact); producer != "" {
				requests = append(requests, r.indexed(ctx, indexSource, producer)...)
			}
		}
		return requests
	}
}

// producerOf is the value of indexSource of what an ExternalArtifact points back at; empty if it points at nothing. The group
// is left out, as the pointer may: to be woken in vain is harmless.
func producerOf(artifact *unstructured.Unstructured) string {
	back, found, err := unstructured.NestedStringMap(artifact.Object, "spec", "sourceRef")
	if err != nil || !found {
		return ""
	}
	return sourceKey(v1.SourceKind(back["kind"]), artifact.GetNamespace(), back["name"])
}

// ownerOf maps an inventory to its StageSet, which may be gone.
func ownerOf(_ context.Context, obj client.Object) []reconcile.Request {
	name := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.(*v1.StageInventory).Spec.StageSet}
	return []reconcile.Request{{NamespacedName: name}}
}

// dependants maps a StageSet to those that depend on it.
func (r *Reconciler) dependants(ctx context.Context, obj client.Object) []reconcile.Request {
	return r.indexed(ctx, indexDependency, obj.GetNamespace()+"/"+obj.GetName())
}

// residents maps a Namespace to the StageSets in it.
func (r *Reconciler) residents(ctx context.Context, obj client.Object) []reconcile.Request {
	if !r.Options.Namespaces.watched(obj.GetName()) {
		return nil
	}
	return r.listed(ctx, client.InNamespace(obj.GetName()))
}

// indexed are the StageSets that name the value in the field, as they are stored or as policies fill them in.
func (r *Reconciler) indexed(ctx context.Context, field, value string) []reconcile.Request {
	requests := r.listed(ctx, client.MatchingFields{field: value})
	for _, name := range r.memory.followers(wake(field, value)) {
		requests = append(requests, reconcile.Request{NamespacedName: name})
	}
	return requests
}

// wake is a value of an index as memo.follow has it.
func wake(field, value string) string { return field + "=" + value }

// wokenBy are all values of indexes that a StageSet has.
func wokenBy(set *v1.StageSet) []string {
	var wakes []string
	for field, extract := range indexes {
		for _, value := range extract(set) {
			wakes = append(wakes, wake(field, value))
		}
	}
	return wakes
}

// listed are the StageSets that which selects, as the cache has them.
func (r *Reconciler) listed(ctx context.Context, which ...client.ListOption) []reconcile.Request {
	var sets v1.StageSetList
	if err := r.Client.List(ctx, &sets, which...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot find the StageSets to wake", "selector", which)
		return nil
	}
	requests := make([]reconcile.Request, 0, len(sets.Items))
	for i := range sets.Items {
		name := types.NamespacedName{Namespace: sets.Items[i].Namespace, Name: sets.Items[i].Name}
		requests = append(requests, reconcile.Request{NamespacedName: name})
	}
	return requests
}

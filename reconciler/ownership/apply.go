package ownership

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/takeover"
	"github.com/stageset/stageset/reconciler/tenant"
)

// Target is a cluster as the stage's account sees it.
type Target interface {
	// Get reads one object.
	Get(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error)
	// Apply is one server-side apply; it returns the API server's answer.
	Apply(ctx context.Context, obj *unstructured.Unstructured, options tenant.ApplyOptions) (*unstructured.Unstructured, error)
	Fields
}

// Fields is what can be known and said of the fields of objects.
type Fields interface {
	// SetManagedFields replaces the managedFields of an object that nobody wrote since it was read.
	SetManagedFields(ctx context.Context, live *unstructured.Unstructured, managed []metav1.ManagedFieldsEntry) error
	Scales
}

// Scales is the subresource scale of objects.
type Scales interface {
	// HasScale is true when objects of the kind have it.
	HasScale(ctx context.Context, gvk schema.GroupVersionKind) (bool, error)
	// Scale reads that of an object, an autoscaling/v1 Scale.
	Scale(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error)
	// ApplyScale applies it, without force, to the object of its name.
	ApplyScale(ctx context.Context, gvk schema.GroupVersionKind, scale *unstructured.Unstructured, manager string) error
}

// Claims knows the inventories of all StageSets.
type Claims interface {
	// Claims are the StageSets that exist and whose inventories have an entry for the object on its cluster.
	Claims(ctx context.Context, place inventory.Place) ([]inventory.Claim, error)
}

// ConflictError says that another StageSet owns an object.
type ConflictError struct {
	Object inventory.Key
	Owner  Owner
}

// Error names the object, its owner and what to do.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s belongs to %s: remove it from one of the two", e.Object, e.Owner)
}

// Applier applies objects for one owner.
type Applier struct {
	Owner Owner
	// Age is the owner's, for what two StageSets would create at the same time.
	Age    inventory.Age
	Claims Claims
	// Cluster is what is applied to, as inventories name it.
	Cluster string
	// Earlier are the field managers that are taken over from.
	Earlier takeover.Managers
}

// Request is how an object is applied.
type Request struct {
	// DryRun stores nothing.
	DryRun bool
	// New is true for an object that is not known to exist.
	New bool
	// UID is that of the live object which is to be changed; empty if there need not be one.
	UID types.UID
}

// Apply is one server-side apply as the target's account, without force first. When fields belong to others, it is repeated
// with force, as Flux does, unless one of the others is a StageSet whose inventory has the object: that is a *ConflictError,
// and nothing is taken. A StageSet that is gone, or no longer has the object, owns nothing. What is new, and in the
// inventory of an older StageSet too, is that one's: the younger leaves it alone before either has made it. What is to be
// changed, and is not there any more, is not made anew, since no inventory expects another object: it is a *failure.Error
// that has the pass start again. The answer has managedFields.
func (a Applier) Apply(ctx context.Context, target Target, obj *unstructured.Unstructured, request Request) (
	*unstructured.Unstructured, error,
) {
	if request.New {
		if err := a.elder(ctx, inventory.KeyOf(obj)); err != nil {
			return nil, err
		}
	}
	if request.UID != "" {
		obj = obj.DeepCopy()
		obj.SetUID(request.UID)
	}
	options := tenant.ApplyOptions{FieldManager: a.Owner.FieldManager(), DryRun: request.DryRun, KeepManagedFields: true}
	answer, err := target.Apply(ctx, obj, options)
	if apierrors.IsConflict(err) {
		if err := a.rival(ctx, target, obj); err != nil {
			return nil, err
		}
		options.Force = true
		answer, err = target.Apply(ctx, obj, options)
	}
	if request.UID != "" && (apierrors.IsConflict(err) || apierrors.IsInvalid(err)) {
		return nil, cmp.Or(replaced(ctx, target, obj), err)
	}
	return answer, err
}

// replaced is a *failure.Error if the live object is not the one that obj has the UID of.
func replaced(ctx context.Context, target Target, obj *unstructured.Unstructured) error {
	live, err := target.Get(ctx, obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
	switch {
	case apierrors.IsNotFound(err), err == nil && live.GetUID() != obj.GetUID():
		return failure.NewTransient(v1.ReasonProgressing, "%s was deleted during the pass: it starts again", inventory.KeyOf(obj))
	}
	return err
}

// others are the claims of other StageSets.
func (a Applier) others(ctx context.Context, key inventory.Key) ([]inventory.Claim, error) {
	claims, err := a.Claims.Claims(ctx, inventory.Place{Cluster: a.Cluster, Key: key})
	return slices.DeleteFunc(claims, func(claim inventory.Claim) bool {
		return claim.Namespace == a.Owner.Namespace && claim.Name == a.Owner.Name
	}), err
}

// elder returns a *ConflictError if an older StageSet has the object in its inventory. Of another cluster, an inventory of another
// namespace says nothing: its server may be one that a tenant made up, behind a proxy, and that agrees to everything.
func (a Applier) elder(ctx context.Context, key inventory.Key) error {
	others, err := a.others(ctx, key)
	if err != nil {
		return err
	}
	for _, claim := range others {
		if a.Cluster != v1.ClusterLocal && claim.Namespace != a.Owner.Namespace {
			continue
		}
		if claim.Older(a.Age) {
			return &ConflictError{Object: key, Owner: Owner{Namespace: claim.Namespace, Name: claim.Name}}
		}
	}
	return nil
}

// rival returns a *ConflictError if another StageSet has applied the live object, and has it in its inventory.
func (a Applier) rival(ctx context.Context, target Target, obj *unstructured.Unstructured) error {
	key := inventory.KeyOf(obj)
	others, err := a.others(ctx, key)
	if err != nil || len(others) == 0 {
		return err
	}
	live, err := target.Get(ctx, obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, claim := range others {
		owner := Owner{Namespace: claim.Namespace, Name: claim.Name}
		if Manages(live, owner.FieldManager()) {
			return &ConflictError{Object: key, Owner: owner}
		}
	}
	return nil
}

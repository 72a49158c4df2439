// Package ownership says whose an object is: it stamps what a StageSet applies, and applies without taking anything from
// another StageSet. It never deletes.
package ownership

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/tenant"
)

// Owner is a StageSet as the owner of objects.
type Owner struct {
	Namespace, Name string
}

// String is the owner as messages have it.
func (o Owner) String() string { return "StageSet " + o.Namespace + "/" + o.Name }

// FieldManager is the owner's server-side apply field manager.
func (o Owner) FieldManager() string { return v1.FieldManager(o.Namespace, o.Name) }

// Selector matches everything that the owner has stamped.
func (o Owner) Selector() labels.Selector {
	return labels.SelectorFromSet(labels.Set{
		v1.LabelName: v1.LabelValue(o.Name), v1.LabelNamespace: v1.LabelValue(o.Namespace),
	})
}

// Stamp is a copy of a rendered object with the labels that name owner and stage, and, for a name too long for a label,
// the annotation that has it in full.
func (o Owner) Stamp(rendered *unstructured.Unstructured, stage string) *unstructured.Unstructured {
	obj := rendered.DeepCopy()
	stamps, annotations := obj.GetLabels(), obj.GetAnnotations()
	if stamps == nil {
		stamps = map[string]string{}
	}
	for key, value := range map[string]string{v1.LabelName: o.Name, v1.LabelNamespace: o.Namespace, v1.LabelStage: stage} {
		stamps[key] = v1.LabelValue(value)
		if stamps[key] == value {
			delete(annotations, key) // which would name another owner in full
			continue
		}
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] = value
	}
	obj.SetLabels(stamps)
	if annotations != nil {
		obj.SetAnnotations(annotations)
	}
	return obj
}

// Of is the owner that an object's labels and annotations name; false if they name none.
func Of(obj *unstructured.Unstructured) (Owner, bool) {
	owner := Owner{Namespace: stamped(obj, v1.LabelNamespace), Name: stamped(obj, v1.LabelName)}
	return owner, owner.Namespace != "" && owner.Name != ""
}

// stamped is a name as Stamp wrote it: an annotation counts only if the label is the short form of it.
func stamped(obj *unstructured.Unstructured, key string) string {
	label := obj.GetLabels()[key]
	if full := obj.GetAnnotations()[key]; v1.LabelValue(full) == label {
		return full
	}
	return label
}

// Target is a cluster as the stage's account sees it.
type Target interface {
	// Get reads one object.
	Get(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error)
	// Apply is one server-side apply; it returns the API server's answer.
	Apply(ctx context.Context, obj *unstructured.Unstructured, options tenant.ApplyOptions) (*unstructured.Unstructured, error)
}

// Claims knows the inventories of all StageSets.
type Claims interface {
	// Claims is true when the inventory of StageSet namespace/name has an entry for the object.
	Claims(ctx context.Context, namespace, name string, key inventory.Key) (bool, error)
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
	Owner  Owner
	Claims Claims
}

// Apply is one server-side apply as the target's account, without force first. When fields belong to others, it is
// repeated with force, as Flux does, unless the others are a StageSet whose inventory has the object: that is a
// *ConflictError, and nothing is taken. A StageSet that is gone, or no longer has the object, owns nothing.
func (a Applier) Apply(ctx context.Context, target Target, obj *unstructured.Unstructured, dryRun bool) (
	*unstructured.Unstructured, error,
) {
	options := tenant.ApplyOptions{FieldManager: a.Owner.FieldManager(), DryRun: dryRun}
	answer, err := target.Apply(ctx, obj, options)
	if !apierrors.IsConflict(err) {
		return answer, err
	}
	if err := a.rival(ctx, target, obj); err != nil {
		return nil, err
	}
	options.Force = true
	return target.Apply(ctx, obj, options)
}

// rival returns a *ConflictError if another StageSet has the live object in its inventory.
func (a Applier) rival(ctx context.Context, target Target, obj *unstructured.Unstructured) error {
	live, err := target.Get(ctx, obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	other, stampedByOther := Of(live)
	if !stampedByOther || other == a.Owner || !Manages(live, other.FieldManager()) {
		return nil
	}
	key := inventory.KeyOf(obj)
	claimed, err := a.Claims.Claims(ctx, other.Namespace, other.Name, key)
	if err != nil || !claimed {
		return err
	}
	return &ConflictError{Object: key, Owner: other}
}

// Manages is true when managedFields have an Apply entry of the manager.
func Manages(live *unstructured.Unstructured, manager string) bool {
	for _, entry := range live.GetManagedFields() {
		if entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply {
			return true
		}
	}
	return false
}

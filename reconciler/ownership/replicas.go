package ownership

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stageset/stageset/reconciler/takeover"
	"github.com/stageset/stageset/reconciler/tenant"
)

// HandoverManager is the field manager that keeps the number of replicas which an owner had set, and does not want to set
// any more, until somebody else sets it.
const HandoverManager = "stageset-handover"

// handOver gives the live number of replicas to HandoverManager if the owner alone has set it, and does not any more.
func (a Applier) handOver(ctx context.Context, target Target, live, obj *unstructured.Unstructured) error {
	if has, err := target.HasScale(ctx, obj.GroupVersionKind()); err != nil || !has {
		return err
	}
	if isCustom(obj) {
		return a.handOverScale(ctx, target, live, obj)
	}
	number, found, err := unstructured.NestedInt64(live.Object, "spec", "replicas")
	if err != nil || !found || setsReplicas(obj) {
		return nil
	}
	owners, err := takeover.Owners(live.GetManagedFields(), "spec", "replicas")
	if err != nil || len(owners) != 1 || owners[0] != a.Owner.FieldManager() {
		return err
	}
	only := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": number}}}
	only.SetGroupVersionKind(obj.GroupVersionKind())
	only.SetNamespace(obj.GetNamespace())
	only.SetName(obj.GetName())
	only.SetUID(live.GetUID()) // else an object that was just deleted would be made of this alone
	_, err = target.Apply(ctx, only, tenant.ApplyOptions{FieldManager: HandoverManager})
	return err
}

// isCustom is true for kinds that definitions define: where their objects have the number of replicas, only the definition
// says, which a tenant need not be allowed to read. All of Kubernetes' own have spec.replicas.
func isCustom(obj *unstructured.Unstructured) bool {
	return strings.Contains(obj.GroupVersionKind().Group, ".")
}

func setsReplicas(obj *unstructured.Unstructured) bool {
	_, found, err := unstructured.NestedFieldNoCopy(obj.Object, "spec", "replicas")
	return found || err != nil
}

// handOverScale hands over through the subresource, which knows the field. When a number that the owner alone has set is not
// wanted any more, and is the number of replicas, then it may be that field. If it was another one by chance, HandoverManager
// owns the field too, until somebody changes the number. An account that may not read or apply scales has nothing handed over.
func (a Applier) handOverScale(ctx context.Context, target Target, live, obj *unstructured.Unstructured) error {
	dropped, err := a.droppedNumbers(live, obj)
	if err != nil || len(dropped) == 0 {
		return err
	}
	gvk := obj.GroupVersionKind()
	scale, err := target.Scale(ctx, gvk, obj.GetNamespace(), obj.GetName())
	if err != nil {
		return unlessRefused(err)
	}
	number, found, err := unstructured.NestedInt64(scale.Object, "spec", "replicas")
	if err != nil || !found || !slices.Contains(dropped, number) {
		return err
	}
	only := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": number}}}
	only.SetGroupVersionKind(scale.GroupVersionKind())
	only.SetNamespace(obj.GetNamespace())
	only.SetName(obj.GetName())
	only.SetUID(live.GetUID())
	return unlessRefused(target.ApplyScale(ctx, gvk, only, HandoverManager))
}

func unlessRefused(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// droppedNumbers are the values of integer fields that the owner alone has set on the live object, and that are not rendered
// any more.
func (a Applier) droppedNumbers(live, obj *unstructured.Unstructured) ([]int64, error) {
	fields, err := takeover.Sole(live.GetManagedFields(), a.Owner.FieldManager())
	var numbers []int64
	for _, field := range fields {
		number, found, err := unstructured.NestedInt64(live.Object, field...)
		_, rendered, _ := unstructured.NestedFieldNoCopy(obj.Object, field...)
		if found && err == nil && !rendered {
			numbers = append(numbers, number)
		}
	}
	return numbers, err
}

package ownership

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/takeover"
)

// maxAttempts is how often an object is read again that others write at the same time.
const maxAttempts = 3

// Inherits is true when Inherit may have something to do before the object is applied, as far as the answer to its dry-run
// tells.
func (a Applier) Inherits(ctx context.Context, target Target, obj, answer *unstructured.Unstructured) (bool, error) {
	heir := a.heir(nil)
	if heir.Possible(answer.GetManagedFields()) {
		return true, nil
	}
	has, err := target.HasScale(ctx, obj.GroupVersionKind())
	if err != nil || !has || isCustom(obj) {
		return has, err
	}
	if setsReplicas(obj) {
		return false, nil
	}
	owners, err := takeover.Owners(answer.GetManagedFields(), "spec", "replicas")
	return err == nil && len(owners) == 0, err
}

// Inherit makes the owner of what earlier tools, and StageSets that are gone, have left on the live object, so that what is
// not rendered goes with the next apply. The number of replicas is the exception: if nobody else sets it, it stays as it is
// when it is not rendered any more, since whoever scales the object from now on starts from there.
func (a Applier) Inherit(ctx context.Context, target Target, obj *unstructured.Unstructured) error {
	others, err := a.others(ctx, inventory.KeyOf(obj))
	if err != nil {
		return err
	}
	heir := a.heir(others)
	for range maxAttempts {
		var live *unstructured.Unstructured
		live, err = target.Get(ctx, obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		merged, taken, mergeErr := heir.Merge(live.GetManagedFields())
		if mergeErr != nil {
			return mergeErr
		}
		if taken {
			err = target.SetManagedFields(ctx, live, merged)
		}
		if err == nil {
			live.SetManagedFields(merged)
			err = a.handOver(ctx, target, live, obj)
		}
		if !apierrors.IsConflict(err) {
			return err
		}
	}
	return err
}

// heir is the owner as the heir of everybody who is not among the claims.
func (a Applier) heir(claims []inventory.Claim) takeover.Heir {
	return takeover.Heir{
		Manager: a.Owner.FieldManager(), Earlier: a.Earlier,
		Gone: func(manager string) bool {
			return strings.HasPrefix(manager, v1.FieldManagerPrefix) && manager != a.Owner.FieldManager() &&
				!slices.ContainsFunc(claims, func(claim inventory.Claim) bool {
					return v1.FieldManager(claim.Namespace, claim.Name) == manager
				})
		},
	}
}

// Outdated is true when managedFields of the live object have entries in an API version that is not served any more: the API
// server cannot apply such an object, in no version.
func (a Applier) Outdated(ctx context.Context, target Target, obj *unstructured.Unstructured) (bool, error) {
	_, outdated, err := a.outdated(ctx, target, obj)
	return len(outdated) > 0, err
}

// Update moves such entries to the version of the object.
func (a Applier) Update(ctx context.Context, target Target, obj *unstructured.Unstructured) error {
	live, outdated, err := a.outdated(ctx, target, obj)
	if err != nil || len(outdated) == 0 {
		return err
	}
	updated, _, err := takeover.Update(live.GetManagedFields(), func(version string) bool { return outdated[version] },
		obj.GetAPIVersion())
	if err != nil {
		return err
	}
	return target.SetManagedFields(ctx, live, updated)
}

// outdated is the live object with the API versions of its managedFields that are not served.
func (a Applier) outdated(ctx context.Context, target Target, obj *unstructured.Unstructured) (
	*unstructured.Unstructured, map[string]bool, error,
) {
	live, err := target.Get(ctx, obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
	if err != nil {
		return nil, nil, err
	}
	served, outdated := map[string]bool{obj.GetAPIVersion(): true}, map[string]bool{}
	for _, entry := range live.GetManagedFields() {
		version := entry.APIVersion
		if served[version] || outdated[version] {
			continue
		}
		// To read the object in that version is the one question whose answer is never out of date.
		gvk := schema.FromAPIVersionAndKind(version, obj.GetKind())
		_, err := target.Get(ctx, gvk, obj.GetNamespace(), obj.GetName())
		switch {
		case meta.IsNoMatchError(err):
			outdated[version] = true
		case err != nil:
			return nil, nil, err
		default:
			served[version] = true
		}
	}
	return live, outdated, nil
}

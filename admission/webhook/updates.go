package webhook

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/policies"
)

// annotationLastApplied is kubectl's own note of what was applied. It changes with every `kubectl apply`, so that without
// leaving it out nobody could suspend a StageSet that way.
const annotationLastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// update is what an UPDATE amounts to.
type update int

const (
	// updateEvaluated is defaulted and evaluated. What leaves the spec alone is treated with more indulgence by the policies.
	updateEvaluated update = iota
	// updateAllowed goes through whatever the policies say.
	updateAllowed
	// updateRefused changes the spec of an object that is being deleted.
	updateRefused
)

// violationDeleting is the refusal of updateRefused. Its names are not those of any policy.
var violationDeleting = policies.Violation{
	Policy: "stageset-admission", Rule: "being-deleted", Field: "spec",
	Message: "this StageSet is being deleted: of its spec only suspend: true and deletionPolicy: Orphan may still be set",
}

// classify compares an object with what is stored. Whether it is being deleted is taken from the stored object: the
// request cannot forge that.
func classify(old, updated *unstructured.Unstructured) update {
	deleting := old.GetDeletionTimestamp() != nil
	rest := withoutAlwaysAllowed(old, updated, deleting)
	specKept := equality.Semantic.DeepEqual(old.Object["spec"], rest.Object["spec"])
	metadataKept := equality.Semantic.DeepEqual(old.GetLabels(), rest.GetLabels()) &&
		equality.Semantic.DeepEqual(old.GetAnnotations(), rest.GetAnnotations())
	switch {
	case specKept && (metadataKept || deleting):
		return updateAllowed
	case deleting:
		return updateRefused
	default:
		return updateEvaluated
	}
}

// specUnchanged tells whether in is an update that leaves the spec alone.
func specUnchanged(in policies.Input) bool {
	return in.OldObject != nil && in.Object != nil &&
		equality.Semantic.DeepEqual(in.OldObject.Object["spec"], in.Object.Object["spec"])
}

// withoutAlwaysAllowed is updated without the changes that are always allowed: turning suspend on, asking for a pass, and,
// on an object that is being deleted, leaving what it applied where it is.
func withoutAlwaysAllowed(old, updated *unstructured.Unstructured, deleting bool) *unstructured.Unstructured {
	rest := updated.DeepCopy()
	if suspend, _, _ := unstructured.NestedBool(rest.Object, "spec", "suspend"); suspend {
		restore(rest, old, "spec", "suspend")
	}
	policy, _, _ := unstructured.NestedString(rest.Object, "spec", "deletionPolicy")
	if deleting && policy == string(v1.DeletionPolicyOrphan) {
		restore(rest, old, "spec", "deletionPolicy")
	}
	restore(rest, old, "metadata", "annotations", v1.AnnotationRequestedAt)
	restore(rest, old, "metadata", "annotations", annotationLastApplied)
	return rest
}

// restore sets a field of object to what it is in old, also when it is unset there.
func restore(object, old *unstructured.Unstructured, path ...string) {
	value, found, err := unstructured.NestedFieldCopy(old.Object, path...)
	if err != nil || !found {
		unstructured.RemoveNestedField(object.Object, path...)
		return
	}
	// An object whose parent field is not a map cannot take the value; it then differs from old, which is evaluated.
	_ = unstructured.SetNestedField(object.Object, value, path...)
}

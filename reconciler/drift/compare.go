package drift

import (
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/stageset/stageset/api/v1"
)

// State is what a recorded entry and the live object say about an object that is rendered.
type State int

const (
	// Missing: the object does not exist.
	Missing State = iota
	// Changed: what is rendered now is not what was recorded as applied.
	Changed
	// Replaced: it is another object under the name of the one that was applied.
	Replaced
	// Disowned: somebody wrote the object since, and managedFields no longer say that we applied it: a field that leaves
	// the manifest would stay, and nothing would be deleted.
	Disowned
	// Suspect: somebody wrote the object since; only a dry-run can say whether a field of ours changed.
	Suspect
	// Unchanged: the object is as our last apply left it.
	Unchanged
)

// Compare classifies a rendered object. hash is its rendered hash, recorded its inventory entry, live what Observe saw
// (nil when it does not exist).
func Compare(rendered *unstructured.Unstructured, hash string, recorded v1.InventoryEntry, live *Live) State {
	switch {
	case live == nil:
		return Missing
	case recorded.RenderedHash != hash || hash == "":
		return Changed
	case recorded.UID != live.UID:
		return Replaced
	case recorded.ResourceVersion == live.ResourceVersion:
		return Unchanged
	case !live.Managed:
		return Disowned
	case recorded.Generation != 0 && recorded.Generation == live.Generation && metadataHolds(rendered, live):
		return Unchanged
	default:
		return Suspect
	}
}

// Touched classifies an object of which only the inventory entry is at hand: Suspect is one that somebody has changed, whether
// it matters or not.
func Touched(recorded v1.InventoryEntry, live *Live) State {
	switch {
	case live == nil:
		return Missing
	case recorded.UID != live.UID:
		return Replaced
	case recorded.ResourceVersion == live.ResourceVersion:
		return Unchanged
	case !live.Managed:
		return Disowned
	case recorded.Generation != 0 && recorded.Generation == live.Generation:
		return Unchanged
	default:
		return Suspect
	}
}

// metadataHolds is true when the live metadata has everything that is rendered: changes of metadata do not count in the
// generation.
func metadataHolds(rendered *unstructured.Unstructured, live *Live) bool {
	return holds(rendered.GetLabels(), live.Labels) && holds(rendered.GetAnnotations(), live.Annotations) &&
		!slices.ContainsFunc(rendered.GetFinalizers(), func(finalizer string) bool {
			return !slices.Contains(live.Finalizers, finalizer)
		}) &&
		!slices.ContainsFunc(rendered.GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
			return !slices.ContainsFunc(live.Owners, func(actual metav1.OwnerReference) bool {
				return reflect.DeepEqual(actual, owner)
			})
		})
}

func holds(rendered, live map[string]string) bool {
	for key, value := range rendered {
		if actual, found := live[key]; !found || actual != value {
			return false
		}
	}
	return true
}

// Same is true when a dry-run's answer equals the live object in everything that an apply can change: managedFields,
// resourceVersion and generation follow from a change, they are none.
func Same(live, answer *unstructured.Unstructured) bool {
	return reflect.DeepEqual(stripped(live), stripped(answer))
}

func stripped(obj *unstructured.Unstructured) map[string]any {
	bare := obj.DeepCopy()
	bare.SetManagedFields(nil)
	bare.SetResourceVersion("")
	bare.SetGeneration(0)
	return bare.Object
}

package preflight

import (
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/ownership"
)

// Conflicts says what happens to an object that the API server does not change, and would take as a new one.
type Conflicts struct {
	// Default is the action for objects that nothing else is said of; empty is Fail.
	Default v1.ConflictAction
	// Rules are looked at first; the first that matches decides.
	Rules []v1.ConflictRule
}

// ConflictsOf are those of a stage as its spec has them.
func ConflictsOf(stage v1.Stage) Conflicts {
	var conflicts Conflicts
	if stage.ConflictPolicy != nil {
		conflicts = Conflicts{Default: stage.ConflictPolicy.Default, Rules: stage.ConflictPolicy.Rules}
	}
	if conflicts.Default == "" && stage.Force {
		conflicts.Default = v1.ConflictRecreate
	}
	return conflicts
}

// Why a policy does not let an object be recreated, and what does.
const (
	adviceRecreate = "only a new object can have it: to let it be deleted and made anew, set stages[].conflictPolicy " +
		"or annotate it with " + v1.AnnotationForce + ": " + v1.ForceEnabled
	adviceDataLoss = "only a new object can have it: as its data would be lost, only a rule of stages[].conflictPolicy with " +
		"allowDataLoss lets it be deleted and made anew"
	adviceKept = "only a new object can have it: the annotation " + v1.AnnotationPrune + ": " + v1.PruneDisabled +
		" keeps it from being deleted and made anew"
	adviceNever = "only a new object can have it: it is never deleted and made anew, because all that is in it would be lost"
)

// action is what happens to an object, of which live is what there is; for Fail, with what to do.
func (c Conflicts) action(object, live *unstructured.Unstructured) (action v1.ConflictAction, advice string) {
	action, lossAllowed := c.choose(object)
	kind := object.GroupVersionKind().GroupKind()
	switch {
	case action == v1.ConflictKeepExisting:
		return action, ""
	case containers[kind]:
		return v1.ConflictFail, adviceNever
	case ownership.Protected(object) || ownership.Protected(live):
		return v1.ConflictFail, adviceKept
	case dataKinds[kind] && !(action == v1.ConflictRecreate && lossAllowed):
		return v1.ConflictFail, adviceDataLoss
	case action == v1.ConflictRecreate:
		return action, ""
	default:
		return v1.ConflictFail, adviceRecreate
	}
}

// ErrProtected is the refusal to delete an object that asks never to be deleted.
var ErrProtected = errors.New(adviceKept)

func (c Conflicts) choose(object *unstructured.Unstructured) (action v1.ConflictAction, lossAllowed bool) {
	for _, rule := range c.Rules {
		if selects(rule.Target, object) {
			return rule.Action, rule.AllowDataLoss
		}
	}
	if object.GetAnnotations()[v1.AnnotationForce] == v1.ForceEnabled {
		return v1.ConflictRecreate, false
	}
	return c.Default, false
}

func selects(target v1.ConflictTarget, object *unstructured.Unstructured) bool {
	for _, field := range []struct{ wanted, got string }{
		{target.APIVersion, object.GetAPIVersion()}, {target.Kind, object.GetKind()},
		{target.Name, object.GetName()}, {target.Namespace, object.GetNamespace()},
	} {
		if field.wanted != "" && field.wanted != field.got {
			return false
		}
	}
	return true
}

var (
	// dataKinds lose data with every single object.
	dataKinds = map[schema.GroupKind]bool{{Kind: "PersistentVolume"}: true, {Kind: "PersistentVolumeClaim"}: true}
	// containers take with them whatever others have put there.
	containers = map[schema.GroupKind]bool{
		{Kind: "Namespace"}: true, {Group: crdGroup, Kind: "CustomResourceDefinition"}: true,
	}
)

// Package ownership says whose an object is: it stamps what a StageSet applies, and applies without taking anything from
// another StageSet. It never deletes.
package ownership

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/stageset/stageset/api/v1"
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

// Manages is true when managedFields have an Apply entry of the manager. It decodes no entry: it is asked about every object
// of every pass.
func Manages(live *unstructured.Unstructured, manager string) bool {
	metadata, _ := live.Object["metadata"].(map[string]any)
	entries, _ := metadata["managedFields"].([]any)
	return slices.ContainsFunc(entries, func(item any) bool {
		entry, _ := item.(map[string]any)
		return entry["manager"] == manager && entry["operation"] == string(metav1.ManagedFieldsOperationApply)
	})
}

// Protected is true for an object that asks never to be deleted, whether it is rendered or live.
func Protected(obj *unstructured.Unstructured) bool {
	return obj.GetAnnotations()[v1.AnnotationPrune] == v1.PruneDisabled
}

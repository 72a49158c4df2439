package health

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
)

// special are the kinds whose health is not, or not only, what kstatus says of it. A function that has not decided leaves it
// to kstatus.
var special = map[schema.GroupKind]func(*unstructured.Unstructured) (result Result, decided bool){
	{Group: "batch", Kind: "Job"}:                    ofJob,
	v1.GroupVersion.WithKind("StageSet").GroupKind(): ofStageSet,
}

// ofJob differs from kstatus, which calls a Job healthy once it has started: a stage after a migration needs it finished.
func ofJob(job *unstructured.Unstructured) (Result, bool) {
	conditions, _, err := unstructured.NestedSlice(job.Object, "status", "conditions")
	if err != nil {
		return Result{Verdict: Progressing, Message: "has a status that cannot be read: " + err.Error()}, true
	}
	for _, item := range conditions {
		condition, _ := item.(map[string]any)
		if condition["status"] != "True" {
			continue
		}
		switch condition["type"] {
		case "Complete", "SuccessCriteriaMet":
			return Result{}, true
		case "Failed", "FailureTarget":
			message := fmt.Sprintf("Job failed: %v: %v", condition["reason"], condition["message"])
			return Result{Verdict: Failed, Message: message}, true
		}
	}
	if suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend"); suspended {
		return Result{Verdict: Progressing, Message: "is suspended"}, true
	}
	return Result{Verdict: Progressing, Message: "Job has not completed"}, true
}

// ofStageSet differs from kstatus, which sees Ready=True alone: a StageSet keeps that while it is suspended, and while a new
// spec waits, because what it applied before runs on.
func ofStageSet(obj *unstructured.Unstructured) (Result, bool) {
	var set v1.StageSet
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &set); err != nil {
		return Result{Verdict: Progressing, Message: "cannot be read: " + err.Error()}, true
	}
	if set.Spec.Suspend {
		return Result{Verdict: Progressing, Message: "is suspended"}, true
	}
	ready := meta.FindStatusCondition(set.Status.Conditions, v1.ConditionReady)
	switch {
	case ready == nil, set.Status.ObservedGeneration != set.Generation:
		return Result{Verdict: Progressing, Message: "has not been reconciled at its current generation"}, true
	case ready.Status == metav1.ConditionTrue && ready.ObservedGeneration != set.Generation:
		return Result{Verdict: Progressing, Message: "has not applied its current generation: " + ready.Message}, true
	}
	return Result{}, false
}

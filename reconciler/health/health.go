// Package health says whether objects are healthy, from their content alone, as kstatus does. It never waits and never
// talks to a cluster.
package health

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
)

// Verdict is what an object's content says of its health.
type Verdict int

const (
	// Healthy: the object is what its spec asks for, at its current generation.
	Healthy Verdict = iota
	// Progressing: it is not there yet, and may get there by itself.
	Progressing
	// Failed: its controller says that it will not get there.
	Failed
	// Silent: it is a custom resource without a status. Either its controller has not looked at it yet, or nobody ever
	// will; see Result.At.
	Silent
)

// grace is how long after its creation a Silent object counts as Progressing.
const grace = 30 * time.Second

// Result is the health of one object.
type Result struct {
	Verdict Verdict
	// Message says what the object waits for or why it failed; empty when healthy.
	Message string
	// created is when a Silent object was created.
	created time.Time
}

// At is the result at a moment: a Silent object is Progressing for thirty seconds after its creation, so that its
// controller has the time to begin, and then healthy.
func (r Result) At(now time.Time) Result {
	switch {
	case r.Verdict != Silent:
		return r
	case now.Sub(r.created) < grace:
		return Result{Verdict: Progressing, Message: "has no status yet"}
	default:
		return Result{}
	}
}

// existence lists the kinds whose health is that they exist: for these a LIST of metadata is enough.
var existence = map[schema.GroupKind]bool{
	{Kind: "ConfigMap"}:                                                             true,
	{Kind: "Secret"}:                                                                true,
	{Kind: "ServiceAccount"}:                                                        true,
	{Kind: "LimitRange"}:                                                            true,
	{Kind: "Endpoints"}:                                                             true,
	{Group: rbac, Kind: "Role"}:                                                     true,
	{Group: rbac, Kind: "RoleBinding"}:                                              true,
	{Group: rbac, Kind: "ClusterRole"}:                                              true,
	{Group: rbac, Kind: "ClusterRoleBinding"}:                                       true,
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}:                             true,
	{Group: "networking.k8s.io", Kind: "IngressClass"}:                              true,
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}:                             true,
	{Group: "storage.k8s.io", Kind: "StorageClass"}:                                 true,
	{Group: "node.k8s.io", Kind: "RuntimeClass"}:                                    true,
	{Group: "discovery.k8s.io", Kind: "EndpointSlice"}:                              true,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}: true,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"}:   true,
}

const rbac = "rbac.authorization.k8s.io"

// deleting is the health of an object that will not be there much longer.
var deleting = Result{Verdict: Progressing, Message: "is being deleted"}

// Of is the health of an object. An object that is being deleted, or whose status cannot be read, is Progressing.
func Of(obj *unstructured.Unstructured) Result {
	if obj.GetDeletionTimestamp() != nil {
		return deleting
	}
	kind := obj.GroupVersionKind().GroupKind()
	if existence[kind] {
		return Result{}
	}
	if special, known := special[kind]; known {
		if result, decided := special(obj); decided {
			return result
		}
	}
	if silent(obj) {
		return Result{Verdict: Silent, created: obj.GetCreationTimestamp().Time}
	}
	computed, err := status.Compute(conventional(obj))
	if err != nil {
		return Result{Verdict: Progressing, Message: "has a status that cannot be read: " + err.Error()}
	}
	switch computed.Status {
	case status.CurrentStatus:
		return Result{}
	case status.FailedStatus:
		return Result{Verdict: Failed, Message: cmp.Or(computed.Message, "is "+string(computed.Status))}
	default:
		return Result{Verdict: Progressing, Message: cmp.Or(computed.Message, "is "+string(computed.Status))}
	}
}

// conventional is the object with a number for status.observedGeneration, which some controllers write as text.
func conventional(obj *unstructured.Unstructured) *unstructured.Unstructured {
	written, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "status", "observedGeneration")
	text, ok := written.(string)
	if !ok {
		return obj
	}
	obj = obj.DeepCopy()
	fields := obj.Object["status"].(map[string]any)
	if generation, err := strconv.ParseInt(text, 10, 64); err == nil {
		fields["observedGeneration"] = generation
	} else {
		delete(fields, "observedGeneration")
	}
	return obj
}

// builtin are the groups of Kubernetes itself whose names have a dot. Others end as they do: gateway.networking.k8s.io and
// snapshot.storage.k8s.io are groups of custom resources.
var builtin = map[string]bool{
	"admissionregistration.k8s.io": true,
	"apiextensions.k8s.io":         true,
	"apiregistration.k8s.io":       true,
	"authentication.k8s.io":        true,
	"authorization.k8s.io":         true,
	"certificates.k8s.io":          true,
	"coordination.k8s.io":          true,
	"discovery.k8s.io":             true,
	"events.k8s.io":                true,
	"flowcontrol.apiserver.k8s.io": true,
	"internal.apiserver.k8s.io":    true,
	"lifecycle.k8s.io":             true,
	"networking.k8s.io":            true,
	"node.k8s.io":                  true,
	rbac:                           true,
	"resource.k8s.io":              true,
	"scheduling.k8s.io":            true,
	"storage.k8s.io":               true,
	"storagemigration.k8s.io":      true,
}

// silent is true for a custom resource that nobody has written a status of. Kinds of Kubernetes itself are none: what they
// mean by an empty status is known.
func silent(obj *unstructured.Unstructured) bool {
	group := obj.GroupVersionKind().Group
	if !strings.Contains(group, ".") || builtin[group] {
		return false
	}
	status, _, err := unstructured.NestedMap(obj.Object, "status")
	return err == nil && len(status) == 0
}

// Item is an object that is not healthy.
type Item struct {
	Key    inventory.Key
	Result Result
}

// Report is the health of a set of objects: those that are not healthy, in the order they were added.
type Report struct {
	Failed, Progressing []Item
}

// Add puts an object's result into the report.
func (r *Report) Add(key inventory.Key, result Result) {
	switch result.Verdict {
	case Failed:
		r.Failed = append(r.Failed, Item{Key: key, Result: result})
	case Progressing:
		r.Progressing = append(r.Progressing, Item{Key: key, Result: result})
	}
}

// Healthy is true when nothing in the report failed or is in progress.
func (r Report) Healthy() bool { return len(r.Failed) == 0 && len(r.Progressing) == 0 }

// maxNamed is how many objects a message names before it counts.
const maxNamed = 5

// FailedMessage names what failed and why; at most five objects, then a count.
func (r Report) FailedMessage() string { return message(r.Failed) }

// ProgressingMessage names what is waited for; at most five objects, then a count.
func (r Report) ProgressingMessage() string { return message(r.Progressing) }

func message(items []Item) string {
	var parts []string
	for _, item := range items[:min(len(items), maxNamed)] {
		parts = append(parts, item.Key.String()+": "+item.Result.Message)
	}
	return strings.Join(failure.AndMore(parts, len(items)-maxNamed), "; ")
}

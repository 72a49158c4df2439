package controller

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/pipeline"
	"github.com/stageset/stageset/reconciler/release"
	"github.com/stageset/stageset/reconciler/teardown"
)

// told is something that a pass has to say. It is noted where it is found out, and told when the pass is concluded.
type told struct {
	// about is the object that the event is on; nil is the StageSet. related is another that it is about; nil is none.
	about   runtime.Object
	related *corev1.ObjectReference
	// kind, reason, action and note are those of the event; an empty kind has a line of the log alone.
	kind, reason, action, note string
	// counter, if there is one, counts objects of them.
	counter prometheus.Counter
	objects int
}

// tell notes something to be told.
func (s *snapshot) tell(what told) { s.told = append(s.told, what) }

// emit tells what the pass has noted so far: each as an event, a line of the log and a metric.
func (r *Reconciler) emit(ctx context.Context, snap *snapshot) {
	for _, what := range snap.told {
		text := snap.redact(what.note)
		log.FromContext(ctx).Info(text, "reason", what.reason)
		if what.counter != nil {
			what.counter.Add(float64(what.objects))
		}
		about := what.about
		if about == nil {
			about = snap.set
		}
		var related runtime.Object // a nil pointer in it would not be nil
		if what.related != nil {
			related = what.related
		}
		if what.kind != "" {
			r.Events.Eventf(about, related, what.kind, what.reason, what.action, "%s", note(text))
		}
	}
	snap.told = nil
}

// note cuts a message to what an event takes.
func note(message string) string {
	const maxNote = 1024 // bytes, whatever the API server's own message says of characters
	return failure.Shorten(message, maxNote)
}

// tellCorrected notes what others did to objects that the pass has applied again, whatever comes of the rest of the pass.
func (s *snapshot) tellCorrected(corrected pipeline.Drifts) {
	if corrected.Objects == 0 {
		return
	}
	first := corrected.First
	s.tell(told{
		// An event about the same pair within minutes is only counted, whatever its note is.
		related: &corev1.ObjectReference{Kind: first.Kind, Namespace: first.Namespace, Name: first.Name},
		kind:    corev1.EventTypeNormal, reason: v1.EventDriftCorrected, action: "Correct", note: "corrected " + corrected.Text,
		counter: driftCorrected, objects: corrected.Objects,
	})
}

// tellDetected notes, once, what others did to applied objects that are not at hand to be applied again.
func (s *snapshot) tellDetected(found pipeline.Drifts, why string) {
	if found.Objects > 0 && found.Text != s.memo.detected {
		first := found.First
		s.tell(told{
			related: &corev1.ObjectReference{Kind: first.Kind, Namespace: first.Namespace, Name: first.Name},
			kind:    corev1.EventTypeWarning, reason: v1.EventDriftDetected, action: "Correct",
			note: "cannot correct " + found.Text + ": what was applied is not at hand " + why,
		})
	}
	s.memo.detected = found.Text
}

// tellLooping notes, once, what somebody sets again and again: it is corrected ever more seldom.
func (s *snapshot) tellLooping(looping string) {
	looping = s.redact(looping) // it is said again in later passes
	if looping != "" && looping != s.memo.looping {
		s.tell(told{
			kind: corev1.EventTypeWarning, reason: v1.EventDriftLoop, action: "Correct",
			note: "drift comes back whenever it is corrected, and is corrected ever more seldom: " + looping,
		})
	}
	s.memo.looping = looping
}

// tellRecreating notes which objects the pass has deleted to make them anew.
func (s *snapshot) tellRecreating(deleted release.Recreating) {
	if deleted.Text == "" {
		return
	}
	first := deleted.First
	s.tell(told{
		related: &corev1.ObjectReference{Kind: first.Kind, Namespace: first.Namespace, Name: first.Name},
		kind:    corev1.EventTypeNormal, reason: v1.EventRecreating, action: "Recreate",
		note: "deleted, to be made anew with a field that cannot be changed: " + deleted.Text,
	})
}

// tellLost notes of which stages no inventory records any more what they have applied.
func (s *snapshot) tellLost(stages []string) {
	list := strings.Join(stages, ", ")
	s.tell(told{
		kind: corev1.EventTypeWarning, reason: v1.EventInventoryLost, action: "Reconcile",
		note: fmt.Sprintf("the inventory of %s is lost: what is rendered now is recorded when it is applied again, and what "+
			"is not is not deleted. What was applied has the labels %s,%s in (%s)",
			list, pipeline.Owner(s.set).Selector(), v1.LabelStage, strings.Join(stages, ",")),
	})
}

// tellOrphans notes what stays, to be read on the StageSet, or, when its namespace is going, on the Namespace.
func (r *Reconciler) tellOrphans(snap *snapshot, lost teardown.Orphans) {
	if len(lost.Keys) == 0 {
		return
	}
	orphans := told{
		kind: corev1.EventTypeWarning, reason: v1.EventOrphaned, action: "Delete",
		note: fmt.Sprintf("StageSet %s/%s leaves behind what it applied, because %s: %s",
			snap.set.Namespace, snap.set.Name, lost.Why, lost),
		counter: orphanedObjects, objects: len(lost.Keys),
	}
	if terminating(snap.namespace) {
		orphans.about = snap.namespace
		// An event about a Namespace has to be in the namespace default.
		if snap.namespace == nil || !r.Options.Namespaces.watched(metav1.NamespaceDefault) {
			orphans.about, orphans.kind = nil, ""
		}
	}
	snap.tell(orphans)
}

// tellUnfilled notes, once, that a deletion goes by the StageSet as it is stored, because policies cannot fill it in.
func (s *snapshot) tellUnfilled() {
	if s.unfilled == nil || s.memo.unfilled == s.unfilled.Error() {
		return
	}
	s.memo.unfilled = s.unfilled.Error()
	s.tell(told{
		kind: corev1.EventTypeWarning, reason: v1.ReasonPolicyViolation, action: "Delete",
		note: "the deletion goes by spec as it is stored, and deletes nothing that was applied with prune: false: " + s.memo.unfilled,
	})
}

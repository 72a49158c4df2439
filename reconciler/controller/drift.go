package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/pipeline"
)

// reportCorrected says what others did to objects that the pass has applied again, whatever comes of the rest of the pass.
func (r *Reconciler) reportCorrected(
	ctx context.Context, set *v1.StageSet, corrected pipeline.Drifts, redact func(string) string,
) {
	if corrected.Objects == 0 {
		return
	}
	driftCorrected.Add(float64(corrected.Objects))
	text, first := redact(corrected.Text), corrected.First
	log.FromContext(ctx).Info("drift corrected", "objects", text)
	// An event about the same pair within minutes is only counted, whatever its note is.
	related := &corev1.ObjectReference{Kind: first.Kind, Namespace: first.Namespace, Name: first.Name}
	r.Events.Eventf(set, related, corev1.EventTypeNormal, v1.EventDriftCorrected, "Correct", "%s", note("corrected "+text))
}

// reportLooping says, once, what somebody sets again and again: it is corrected ever more seldom.
func (r *Reconciler) reportLooping(snap *snapshot, looping string) {
	if looping != "" && looping != snap.memo.looping {
		r.Events.Eventf(snap.set, nil, corev1.EventTypeWarning, v1.EventDriftLoop, "Correct", "%s",
			note("drift comes back whenever it is corrected, and is corrected ever more seldom: "+looping))
	}
	snap.memo.looping = looping
}

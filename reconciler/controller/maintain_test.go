package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// The interval is that of the StageSet as policies fill it in, as everywhere else.
func TestDueToMaintain(t *testing.T) {
	now := time.Unix(10_000, 0)
	minute := v1.StageSetSpec{Interval: &metav1.Duration{Duration: time.Minute}}
	for name, test := range map[string]struct {
		effective   v1.StageSetSpec
		ago         time.Duration
		annotations map[string]string
		running     *failure.Error
		want        bool
	}{
		"before the default interval":         {ago: 9 * time.Minute},
		"after the default interval":          {ago: 10 * time.Minute, want: true},
		"before the interval of a policy":     {effective: minute, ago: 59 * time.Second},
		"after the interval of a policy":      {effective: minute, ago: time.Minute, want: true},
		"asked for, before either interval":   {annotations: map[string]string{v1.AnnotationRequestedAt: "now"}, want: true},
		"not healthy, before either interval": {running: failure.NewStalled(v1.ReasonHealthCheckFailed, "broken"), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Options: Options{DefaultInterval: 10 * time.Minute}}
			stored := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}}
			snap := &snapshot{
				set: stored, effective: &v1.StageSet{Spec: test.effective}, memo: &memo{maintained: now.Add(-test.ago), running: test.running},
			}
			if got := r.dueToMaintain(snap, now); got != test.want {
				t.Errorf("due: %t, want %t", got, test.want)
			}
		})
	}
}

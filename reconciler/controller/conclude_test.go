package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

func TestPause(t *testing.T) {
	stalled := failure.NewStalled(v1.ReasonAccessDenied, "denied")
	transient := failure.NewTransient(v1.ReasonTargetUnreachable, "no answer")
	waiting := failure.NewWaiting(v1.ReasonDependencyNotReady, 30*time.Second, "not ready")
	watched := failure.NewWaiting(v1.ReasonSourceNotReady, 0, "no artifact")
	cases := map[string]struct {
		interval, retryInterval time.Duration
		passes                  []*failure.Error
		want                    []time.Duration
	}{
		"success waits for the interval": {passes: []*failure.Error{nil}, want: []time.Duration{10 * time.Minute}},
		"its own interval": {
			interval: time.Hour, passes: []*failure.Error{nil}, want: []time.Duration{time.Hour},
		},
		"stalled and transient back off alike": {
			passes: []*failure.Error{stalled, transient, stalled, stalled},
			want:   []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second},
		},
		"no further than retryInterval": {
			retryInterval: 3 * time.Second, passes: []*failure.Error{stalled, stalled, stalled},
			want: []time.Duration{time.Second, 2 * time.Second, 3 * time.Second},
		},
		"no further than two minutes without one": {
			passes: []*failure.Error{stalled, stalled, stalled, stalled, stalled, stalled, stalled, stalled, stalled},
			want: []time.Duration{
				time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second,
				64 * time.Second, 2 * time.Minute, 2 * time.Minute,
			},
		},
		"no further than a shorter interval": {
			interval: 30 * time.Second, passes: []*failure.Error{stalled, stalled, stalled, stalled, stalled, stalled},
			want: []time.Duration{
				time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second,
			},
		},
		"a pass without a failure begins anew": {
			passes: []*failure.Error{stalled, stalled, nil, stalled},
			want:   []time.Duration{time.Second, 2 * time.Second, 10 * time.Minute, time.Second},
		},
		"waits have their own pauses": {
			passes: []*failure.Error{stalled, waiting, watched, stalled},
			want:   []time.Duration{time.Second, 30 * time.Second, 10 * time.Minute, time.Second},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set := &v1.StageSet{}
			if tc.interval > 0 {
				set.Spec.Interval = &metav1.Duration{Duration: tc.interval}
			}
			if tc.retryInterval > 0 {
				set.Spec.RetryInterval = &metav1.Duration{Duration: tc.retryInterval}
			}
			r := &Reconciler{Options: Options{DefaultInterval: 10 * time.Minute}}
			snap := &snapshot{set: set, memo: &memo{}}
			var got []time.Duration
			for _, failed := range tc.passes {
				var ended outcome
				ended.Failure = failed
				got = append(got, r.pause(snap, ended))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("pauses (-want +got):\n%s", diff)
			}
		})
	}
}

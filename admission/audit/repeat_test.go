package audit

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// Everything is evaluated at once, when something changes, and every hour; sooner where it was not complete, and after a
// while where it takes long.
func TestRepeat(t *testing.T) {
	type told struct {
		at   time.Duration
		also bool // by the other channel
	}
	for name, test := range map[string]struct {
		takes time.Duration
		fails int // of the first audits
		told  []told
		want  string // when audits begin, within three hours
	}{
		"nothing changes":     {want: "[0s 1h0m1s 2h0m2s]"},
		"a policy changes":    {told: []told{{at: time.Minute}}, want: "[0s 1m0s 1h1m1s 2h1m2s]"},
		"a namespace changes": {told: []told{{time.Minute, true}}, want: "[0s 1m0s 1h1m1s 2h1m2s]"},
		"both, at once":       {told: []told{{settle / 2, true}, {at: settle / 4}}, want: "[0s 1s 2s 1h0m3s 2h0m4s]"},
		"it fails":            {fails: 2, want: "[0s 11s 22s 1h0m23s 2h0m24s]"},
		"it takes long":       {takes: 10 * time.Minute, want: "[0s 1h50m0s]"},
		"and all changes": {
			takes: 10 * time.Minute, told: []told{{at: time.Minute}, {at: time.Hour}, {at: 61 * time.Minute}},
			want: "[0s 50m0s 1h40m0s]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
				defer cancel()
				stored, others := make(chan struct{}, 1), make(chan struct{}, 1)
				for _, change := range test.told {
					channel := stored
					if change.also {
						channel = others
					}
					time.AfterFunc(change.at, func() {
						select {
						case channel <- struct{}{}:
						default:
						}
					})
				}
				var began []time.Duration
				start := time.Now()
				repeat(ctx, clock.RealClock{}, func(context.Context) error {
					began = append(began, time.Since(start))
					<-time.After(test.takes)
					if len(began) <= test.fails {
						return errors.New("not complete")
					}
					return nil
				}, stored, others)
				if got := fmt.Sprint(began); got != test.want {
					t.Errorf("audits begin after %s, want %s", got, test.want)
				}
			})
		})
	}
}

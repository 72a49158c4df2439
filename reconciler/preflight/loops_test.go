package preflight

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stageset/stageset/reconciler/drift"
	"github.com/stageset/stageset/reconciler/inventory"
)

// T-57: the same drift again and again is corrected ever more seldom; another drift, or a pass without one, begins anew.
func TestLoops(t *testing.T) {
	const (
		none      = ""
		corrected = "corrected"
		named     = "corrected, and named"
		left      = "left, and named"
	)
	same := &drift.Found{Key: inventory.Key{Kind: "ConfigMap", Name: "a"}, State: drift.Suspect, Paths: []string{"data.a"}}
	other := &drift.Found{Key: same.Key, State: drift.Suspect, Paths: []string{"data.b"}}
	type pass struct {
		found *drift.Found
		after time.Duration
		asked bool
		want  string
	}
	const interval = 10 * time.Minute
	cases := map[string][]pass{
		"the same in each pass": {
			{found: same, want: corrected}, {found: same, after: interval, want: corrected},
			{found: same, after: interval, want: left}, {found: same, after: interval, want: named},
			{found: same, after: interval, want: left}, {found: same, after: interval, want: left},
			{found: same, after: interval, want: left}, {found: same, after: interval, want: named},
		},
		"something else": {
			{found: same, want: corrected}, {found: same, want: corrected}, {found: other, want: corrected},
			{found: same, want: corrected}, {found: same, want: corrected}, {found: same, want: left},
		},
		"nothing in between": {
			{found: same, want: corrected}, {found: same, want: corrected}, {want: none},
			{found: same, want: corrected}, {found: same, want: corrected}, {found: same, want: left},
		},
		"somebody asks for it": {
			{found: same, want: corrected}, {found: same, want: corrected}, {found: same, asked: true, want: named},
			{found: same, want: left},
		},
	}
	for name, passes := range cases {
		t.Run(name, func(t *testing.T) {
			var loops Loops
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			for number, pass := range passes {
				now = now.Add(pass.after)
				loops.Begin(now, interval, pass.asked)
				got := none
				if pass.found != nil {
					looping, isLeft := loops.drifts(*pass.found)
					got = map[bool]map[bool]string{false: {false: corrected}, true: {false: named, true: left}}[looping][isLeft]
					if !isLeft {
						loops.corrected(*pass.found)
					}
				}
				loops.end()
				if got != pass.want {
					t.Errorf("pass %d: %s, want %s", number+1, got, pass.want)
				}
			}
		})
	}
}

// However often, once in a day it is tried again, or after the interval if that is longer.
func TestLoopPauseIsBounded(t *testing.T) {
	got := map[time.Duration]time.Duration{}
	const years = 20 * 365 * 24 * time.Hour
	for _, interval := range []time.Duration{10 * time.Minute, 36 * time.Hour, years} {
		got[interval] = (&Loops{interval: interval}).pause(1000)
	}
	want := map[time.Duration]time.Duration{10 * time.Minute: 24 * time.Hour, 36 * time.Hour: 36 * time.Hour, years: years}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
}

package tenant

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
)

// What the API server here takes for a token is held against no cloud, and no other cluster.
func TestTokensWithoutACloudAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 2 * patience
		slowly := func(ctx context.Context, _ grant, now time.Time) (*token, error) {
			return newToken("made", lifetime, now), waitFor(ctx, takes, nil)
		}
		clients := &Clients{abroad: newTokens(slowly, Options{
			Clock: clock.RealClock{}, Accounts: maxAbroad, RequestTimeout: defaultRequestTimeout,
		})}
		pass := &Pass{}
		began := time.Now()
		_, err := clients.tokenAbroad(pass.Context(t.Context()), grant{audiences: "there"})
		got := carried{time.Since(began), err != nil, pass.Postponed(), pass.Slow()}
		if diff := cmp.Diff(carried{Took: takes}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// A pass in a hurry does not wait for a cloud that is slow. A patient one does; the exchange goes on meanwhile.
func TestCloudThatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 3 * patience
		exchanges := 0
		slowly := func(ctx context.Context, _ grant, now time.Time) (*token, error) {
			exchanges++
			return newToken("exchanged", lifetime, now), waitFor(ctx, takes, nil)
		}
		clients := &Clients{abroad: newTokens(slowly, Options{
			Clock: clock.RealClock{}, Accounts: maxAbroad, RequestTimeout: defaultRequestTimeout,
		})}
		for _, tc := range []struct {
			when    string
			patient bool
			want    carried
		}{
			{"in a hurry", false, carried{patience, true, true, true}},
			{"patiently", true, carried{takes - patience, false, false, true}},
			{"in a hurry, when it is there", false, carried{}},
		} {
			pass := &Pass{Patient: tc.patient}
			began := time.Now()
			_, err := clients.tokenAbroad(pass.Context(t.Context()), grant{cloud: exchange{provider: "aws"}})
			got := carried{time.Since(began), err != nil, pass.Postponed(), pass.Slow()}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.when, diff)
			}
		}
		if exchanges != 1 {
			t.Errorf("%d exchanges, want 1", exchanges)
		}
	})
}

package tenant

import (
	"context"
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// A server elsewhere may take each token once, to have us request one for each request. Ours does not.
func TestTokensThatAreTakenOnce(t *testing.T) {
	for name, distrusts := range map[string]bool{"the local API server": false, "another": true} {
		t.Run(name, func(t *testing.T) {
			passive := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
			minted := 0
			mint := func(_ context.Context, _ grant, now time.Time) (*token, error) {
				minted++
				return newToken("t", time.Hour, now), nil
			}
			tokens := newTokens(mint, Options{Clock: passive, RequestTimeout: time.Second, Accounts: 1})
			tokens.distrusts = distrusts
			current, err := tokens.get(t.Context(), grant{})
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				current.worked.Store(true)
				next, err := tokens.replace(t.Context(), grant{}, current)
				if errors.Is(err, errRejected) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				current = next
			}
			want := 11
			if distrusts {
				want = 2
			}
			if minted != want {
				t.Errorf("%d tokens were requested, want %d", minted, want)
			}
			passive.SetTime(time.Unix(0, 0).Add(mintPause))
			if _, err := tokens.replace(t.Context(), grant{}, current); err != nil {
				t.Errorf("later: %v, want another one", err)
			}
		})
	}
}

package tenant

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// lifetime is what is asked for; the API server grants at least ten minutes and may grant less than asked.
	lifetime = time.Hour
	// mintPause is the least time between two tokens for an account of which the first has not worked yet. It bounds what
	// an API server that issues expired or unacceptable tokens can make us ask for.
	mintPause = 10 * time.Second
)

// errRejected says that an account's token was refused and that asking for another one so soon would not help.
var errRejected = errors.New("the token was issued a moment ago and has never been accepted")

// token is one answer to a TokenRequest.
type token struct {
	value string
	uid   types.UID
	// audiences are those of the token, and its issuer, who is usually one.
	audiences []string
	// server and ca are what the cloud knows of the cluster that takes the token.
	server, ca string
	minted     time.Time
	// expires is measured on our clock, from the life that the server's own clock gave the token.
	expires time.Time
	// replacement says that the token was requested because the one before had been rejected.
	replacement bool

	// refresh is when the next request for a token is due; guarded by tokens.mu.
	refresh time.Time
	// worked is set by the first answer that is not 401, rejected by the first that is.
	worked, rejected atomic.Bool
}

// grant is what a token proves: to be the account, to whoever listens to one of the audiences.
type grant struct {
	account Account
	// audiences, one a line; none are those of the local API server, or what the cloud wants.
	audiences string
	// uid is that of the account as it is now, where that is known at no cost: of the account that reads what leads to another
	// cluster. One that was made anew by the same name gets other tokens at once.
	uid types.UID
	// cloud exchanges the token for one that a cluster of its takes; the zero value is no cloud.
	cloud exchange
}

// String tells grants apart.
func (g grant) String() string {
	return fmt.Sprintf("%q", []string{
		g.account.String(), string(g.uid), g.audiences,
		g.cloud.provider, g.cloud.cluster, g.cloud.address, g.cloud.ca, g.cloud.reader.String(),
	})
}

// mintFunc requests one token; its errors are *failure.Error. The clock's reading is from before the request was sent.
type mintFunc func(ctx context.Context, of grant, now time.Time) (*token, error)

// tokens keeps the current token of each grant. Safe for concurrent use.
type tokens struct {
	mint    mintFunc
	clock   clock.PassiveClock
	timeout time.Duration
	flights singleflight.Group
	// distrusts is true for tokens whose servers may refuse what they have just taken, to have us request more.
	distrusts bool

	mu    sync.Mutex
	cache *lru.Cache
}

func newTokens(mint mintFunc, opts Options) *tokens {
	return &tokens{mint: mint, clock: opts.Clock, timeout: opts.RequestTimeout, cache: lru.New(opts.Accounts)}
}

// get is a token to use now. Once 80 % of its life is over, give or take, the first caller has the next one requested in
// the background and goes on with the one there is; only a caller that finds none, or an expired one, waits.
func (t *tokens) get(ctx context.Context, of grant) (*token, error) {
	now := t.clock.Now()
	current := t.current(of)
	if current == nil || !now.Before(current.expires) {
		return t.next(ctx, of, current)
	}
	if t.due(current, now) {
		t.launch(ctx, of, current)
	}
	return current, nil
}

// replace is a token other than the given one, which got a 401: somebody else's replacement, or a new one. Whether our
// clock thinks that the rejected token is still good does not matter. errRejected is returned instead of a storm.
func (t *tokens) replace(ctx context.Context, of grant, rejected *token) (*token, error) {
	rejected.rejected.Store(true)
	young := t.clock.Since(rejected.minted) < mintPause
	if rejected.replacement && young && (t.distrusts || !rejected.worked.Load()) {
		return nil, errRejected
	}
	if current := t.evict(of, rejected); current != nil {
		return current, nil
	}
	return t.next(ctx, of, rejected)
}

// current is the grant's token, nil if there is none.
func (t *tokens) current(of grant) *token {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cached(of)
}

// evict forgets the rejected token; if another one has taken its place, that one stays and is returned.
func (t *tokens) evict(of grant, rejected *token) *token {
	t.mu.Lock()
	defer t.mu.Unlock()
	current := t.cached(of)
	if current != rejected {
		return current
	}
	t.cache.Remove(of)
	return nil
}

// cached needs t.mu.
func (t *tokens) cached(of grant) *token {
	if found, ok := t.cache.Get(of); ok {
		return found.(*token)
	}
	return nil
}

// due says to one caller at a time that it has to refresh the token. If that fails, the next attempt is mintPause away,
// however many requests pass by.
func (t *tokens) due(current *token, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(current.refresh) {
		return false
	}
	current.refresh = now.Add(mintPause)
	return true
}

// next waits for a token other than the stale one, or until the caller's own context ends.
func (t *tokens) next(ctx context.Context, of grant, stale *token) (*token, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case result := <-t.launch(ctx, of, stale):
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.(*token), nil
	}
}

// launch requests a token once for all who ask meanwhile. It runs on after the first of them has left, bounded by the
// request timeout alone.
func (t *tokens) launch(ctx context.Context, of grant, stale *token) <-chan singleflight.Result {
	return t.flights.DoChan(of.String(), func() (any, error) {
		now := t.clock.Now()
		// A flight that ended between the caller's look and this one may have brought the token already.
		if current := t.current(of); current != nil && current != stale && now.Before(current.expires) {
			return current, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.timeout)
		defer cancel()
		minted, err := t.mint(ctx, of, now)
		if err != nil {
			return nil, err
		}
		minted.replacement = stale != nil && stale.rejected.Load()
		t.mu.Lock()
		defer t.mu.Unlock()
		t.cache.Add(of, minted)
		return minted, nil
	})
}

// newToken gives a token the times at which it is refreshed and no longer used. Only the difference of two readings of the
// server's clock is trusted, so neither clock has to be right; a life that makes no sense is taken as mintPause, in which
// the token is tried: the server decides whether it is good.
func newToken(value string, life time.Duration, now time.Time) *token {
	life = min(max(life, mintPause), lifetime)
	// 75 % to 85 %, so that accounts which got their tokens together do not come back together.
	refresh := time.Duration(float64(life) * (0.75 + 0.1*rand.Float64()))
	return &token{value: value, minted: now, expires: now.Add(life), refresh: now.Add(max(refresh, mintPause))}
}

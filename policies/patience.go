package policies

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var errNoAnswer = errors.New("the API server did not answer in time")

// patientLookup finds parameters for one request. All that it is asked for takes as long as one policy may, counted from the
// first: an API server that does not answer leaves time for everything else. It is for one goroutine.
type patientLookup struct {
	next ParamLookup
	// request is the context of the request: that of a policy may end earlier.
	request context.Context
	limit   time.Duration
	// waiting is nil until something is asked for.
	waiting context.Context
	end     context.CancelFunc
}

// patient is the lookup of s for the request of ctx, nil if s has none, and what must be called when nothing more is asked.
func (s *Set) patient(ctx context.Context) (ParamLookup, func()) {
	if s.lookup == nil {
		return nil, func() {}
	}
	p := &patientLookup{next: s.lookup, request: ctx, limit: s.timeout / policyTimeShare, end: func() {}}
	return p, func() { p.end() }
}

// Params implements ParamLookup.
func (p *patientLookup) Params(_ context.Context, query ParamQuery) ([]*unstructured.Unstructured, error) {
	if p.waiting == nil {
		p.waiting, p.end = context.WithTimeout(p.request, p.limit)
	}
	objects, err := p.next.Params(p.waiting, query)
	if err != nil && p.waiting.Err() != nil {
		return nil, errNoAnswer
	}
	return objects, err
}

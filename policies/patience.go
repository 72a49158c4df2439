package policies

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var errNoAnswer = errors.New("the API server did not answer in time")

// patient is a ParamLookup for one request, which is given up once it has let one policy wait for all of its time: an API
// server that does not answer leaves time for everything else. It is for one goroutine.
type patient struct {
	ParamLookup
	silent bool
}

// patientLookup is the lookup of s for one request; nil if s has none.
func (s *Set) patientLookup() ParamLookup {
	if s.lookup == nil {
		return nil
	}
	return &patient{ParamLookup: s.lookup}
}

// Params implements ParamLookup. The context is that of the policy.
func (p *patient) Params(ctx context.Context, query ParamQuery) ([]*unstructured.Unstructured, error) {
	if p.silent {
		return nil, errNoAnswer
	}
	objects, err := p.ParamLookup.Params(ctx, query)
	if err != nil && ctx.Err() != nil {
		p.silent = true
		return nil, errNoAnswer
	}
	return objects, err
}

package rules

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"iter"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/lru"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/reconciler/source"
)

// maxVerdicts is how many stages are remembered, of less than a kilobyte each unless policies warn of them.
const maxVerdicts = 8192

// Policies asks the policies about releases. It remembers stages of which nothing was denied, so that a pass in which nothing
// has changed evaluates nothing of what is rendered. It is safe for concurrent use.
type Policies struct {
	current func() *policies.Set

	mu       sync.Mutex
	verdicts *verdicts
}

// New asks the policies that current gives, which hold then; a pass asks it once.
func New(current func() *policies.Set) *Policies { return &Policies{current: current} }

// verdicts are what one set of policies has said about stages. What another said is worth nothing.
type verdicts struct {
	set *policies.Set
	// warned has what was warned of, by verdictKey.
	warned *lru.Cache
}

// verdictKey is the hash of everything that the policies see of a stage.
type verdictKey [sha256.Size]byte

// now are the verdicts of the policies that hold now.
func (p *Policies) now() *verdicts {
	set := p.current()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.verdicts == nil || p.verdicts.set != set {
		p.verdicts = &verdicts{set: set, warned: lru.New(maxVerdicts)}
	}
	return p.verdicts
}

// known tells whether it is known what the policies say about a stage, with what they warn of.
func (v *verdicts) known(key verdictKey) (warned []string, ok bool) {
	found, ok := v.warned.Get(key)
	if !ok {
		return nil, false
	}
	return found.([]string), true
}

// key is that of a stage; false if what the policies say about it is not to be remembered, because nobody can tell which
// parameters they have.
func (r *Review) key(
	ctx context.Context, in policies.SourceInput, target v1alpha1.TargetFacts, objects iter.Seq2[*unstructured.Unstructured, string],
) (verdictKey, bool) {
	params, ok := r.set.ParamsOf(ctx, v1alpha1.TargetManifest, in)
	if !ok {
		return verdictKey{}, false
	}
	if r.about == nil {
		if r.about, ok = hashed(r.object, r.namespace); !ok {
			return verdictKey{}, false
		}
	}
	stage, ok := hashed(r.about, in.Stage, in.Source, target, params)
	if !ok {
		return verdictKey{}, false
	}
	hash := sha256.New()
	_, _ = hash.Write(stage)
	for _, rendered := range objects {
		_, _ = io.WriteString(hash, rendered+"\n") // a hash takes everything
	}
	return verdictKey(hash.Sum(nil)), true
}

// hashed is the hash of parts as JSON; false if they have none.
func hashed(parts ...any) ([]byte, bool) {
	hash := sha256.New()
	into := json.NewEncoder(hash)
	for _, part := range parts {
		if err := into.Encode(part); err != nil {
			return nil, false
		}
	}
	return hash.Sum(nil), true
}

// Manifests asks about all objects that a stage renders, as they will be applied to the target, each with a hash of its
// content.
func (r *Review) Manifests(
	ctx context.Context, stage string, pin source.Pin, target v1alpha1.TargetFacts,
	objects iter.Seq2[*unstructured.Unstructured, string],
) {
	if !r.set.HasTarget(v1alpha1.TargetManifest) {
		return
	}
	ctx, done := r.timed(ctx)
	defer done()
	in := r.input(stage, pin)
	key, ok := r.key(ctx, in, target, objects)
	if ok {
		if warned, known := r.verdicts.known(key); known {
			r.warn(warned)
			return
		}
	}
	said := stageVerdict{}
	for object := range objects {
		decision := r.set.ValidateManifest(ctx, policies.ManifestInput{SourceInput: in, Object: object, Target: target})
		said.add(decision, r.add(ctx, "stage "+stage+": "+describe(object)+": ", decision))
	}
	if ok && said.clean() {
		r.verdicts.warned.Add(key, said.warned)
	}
}

// stageVerdict is what the policies said about all objects of a stage.
type stageVerdict struct {
	warned []string
	// wrong tells that something was denied, or could not be evaluated, which may be different the next time.
	wrong bool
}

func (v *stageVerdict) add(decision policies.Decision, warned []string) {
	v.wrong = v.wrong || len(decision.Denied)+len(decision.Failed)+len(decision.Ignored) > 0
	v.warned = append(v.warned, warned[:min(len(warned), maxViolations+1-len(v.warned))]...)
}

// clean tells whether it can be remembered: nothing is wrong, and no more is warned of than is kept.
func (v *stageVerdict) clean() bool { return !v.wrong && len(v.warned) <= maxViolations }

// Package pipeline takes a StageSet from its spec to a release that may be applied: accounts, dependencies, pinned sources,
// artifacts, manifests, preflight. It never writes to a target, and reads everything that a StageSet names as the tenant.
package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/build"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/ownership"
	"github.com/stageset/stageset/reconciler/source"
	"github.com/stageset/stageset/reconciler/tenant"
)

// Tenants makes the clients that everything a tenant names is read and written with.
type Tenants interface {
	// Local reads in the StageSet's cluster, as an account; one without a name is the reconciler's own, where that is allowed.
	Local(ctx context.Context, account tenant.Account) (*tenant.Reader, error)
	// Destination finds a cluster to apply to.
	Destination(ctx context.Context, reference tenant.Reference) (tenant.Destination, error)
	// Target is the client of an account on a cluster that is applied to.
	Target(ctx context.Context, to tenant.Destination, account tenant.Account) (*tenant.Client, error)
}

// Review is what the policies say of a release.
type Review interface {
	// Source asks about the resolved source of a stage.
	Source(ctx context.Context, stage string, pin source.Pin)
	// Manifests asks about all objects that a stage renders, as they will be applied to the target, each with its rendered
	// hash.
	Manifests(
		ctx context.Context, stage string, pin source.Pin, target tenant.Facts, objects iter.Seq2[*unstructured.Unstructured, string],
	)
	// Err is a *failure.Error that lists everything that was denied so far.
	Err() error
}

// Pipeline holds what the steps need. Its fields are set once and not changed.
type Pipeline struct {
	Tenants  Tenants
	Resolver *source.Resolver
	Fetcher  *source.Fetcher
	Builds   *build.Cache
	Hasher   inventory.Hasher
	// Applier applies for nobody yet: it has no owner.
	Applier ownership.Applier
	Graph   Graph
	// Concurrency bounds the requests of one release that are under way at once.
	Concurrency int
	// Step begins a step, or what a step does for a stage, and returns what ends it; nil tells nobody.
	Step func(ctx context.Context, name string, about ...slog.Attr) (within context.Context, end func())
}

// step begins a step; what it returns ends it.
func (p *Pipeline) step(ctx context.Context, name string, about ...slog.Attr) (within context.Context, end func()) {
	if p.Step == nil {
		return ctx, func() {}
	}
	return p.Step(ctx, name, about...)
}

// PinnedStage is a stage with its account and its pinned source.
type PinnedStage struct {
	Stage v1.Stage
	// Local reads the stage's source as its account, in the cluster of the StageSet.
	Local *tenant.Reader
	// Target is what is applied to as the account, which may be another cluster.
	Target *tenant.Client
	Pin    source.Pin
	// Variables are what postBuild substitutes; nil if the stage has none.
	Variables build.Variables
}

// Pinned is a StageSet whose sources are pinned for a whole run.
type Pinned struct {
	Stages []PinnedStage
	// Destination is the cluster that is applied to.
	Destination tenant.Destination
	// Dependencies differs when a StageSet in dependsOn does: another object, or another generation.
	Dependencies string
	// secrets takes out the values of variables that no message may tell.
	secrets build.Redactor
}

// Redact is a text about the release without values of the Secrets that it substitutes. What API servers, webhooks and
// policies say of an object may quote any field of it.
func (p Pinned) Redact(text string) string { return p.secrets.Redact(text) }

// Identity is equal for equal pins and variables applied to the same cluster as equal accounts: a run goes on as long as it
// does not change.
func (p Pinned) Identity() string {
	hash := sha256.New()
	fmt.Fprintln(hash, p.Destination.Cluster())
	for _, stage := range p.Stages {
		fmt.Fprintf(hash, "%s\x00%s\x00%s\x00%s\x00%s\n",
			stage.Stage.Name, stage.Target.Account(), stage.Pin.URL, stage.Pin.Digest, stage.Pin.Revision)
		_ = json.NewEncoder(hash).Encode(stage.Variables) // texts, and a hash takes everything
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// Revisions maps namespace/name of each source to its pinned revision.
func (p Pinned) Revisions() map[string]string {
	revisions := map[string]string{}
	for _, stage := range p.Stages {
		revisions[stage.Pin.Namespace+"/"+stage.Pin.Name] = stage.Pin.Revision
	}
	return revisions
}

// Pin finds each stage's account, waits for the StageSets in dependsOn, resolves all sources, each as the stage's account, has
// them reviewed, and reads the variables that are substituted. Each of these may have to bring what the next ones need, so it
// ends at the first that has problems, with those of all stages. Whether dependencies run the revisions of sources that both
// use can only be told when these are known.
func (p *Pipeline) Pin(ctx context.Context, set *v1.StageSet, review Review) (Pinned, error) {
	pinned, err := p.accounts(ctx, set)
	if err != nil {
		return Pinned{}, err
	}
	dependencies, err := p.dependencies(ctx, set)
	if err != nil {
		return Pinned{}, err
	}
	if err := p.sources(ctx, set, pinned); err != nil {
		return Pinned{}, err
	}
	for _, stage := range pinned.Stages {
		review.Source(ctx, stage.Stage.Name, stage.Pin)
	}
	if err := review.Err(); err != nil {
		return Pinned{}, err
	}
	if pinned.Dependencies, err = agree(dependencies, pinned); err != nil {
		return Pinned{}, err
	}
	err = p.variables(ctx, set, &pinned)
	return pinned, err
}

// sources pins the sources of all stages. Stages that name the same source as the same account share one read; stages
// with different accounts are each read for, but all stages of a run have one revision of a source.
func (p *Pipeline) sources(ctx context.Context, set *v1.StageSet, pinned Pinned) error {
	ctx, end := p.step(ctx, "sources")
	defer end()
	type read struct {
		ref     v1.SourceReference
		account tenant.Account
	}
	pins := map[read]source.Pin{}
	first := map[types.UID]source.Pin{}
	var problems []error
	for i := range pinned.Stages {
		stage := &pinned.Stages[i]
		this := read{ref: stage.Stage.SourceRef, account: stage.Local.Account()}
		if _, known := pins[this]; !known {
			pin, err := p.resolve(ctx, set, stage)
			if err != nil {
				problems = append(problems, inStage(err, stage))
			}
			if earlier, again := first[pin.UID]; again {
				pin = earlier
			}
			first[pin.UID] = pin
			pins[this] = pin
		}
		stage.Pin = pins[this]
	}
	return failure.Join(problems...)
}

// resolve reads and pins the source of a stage.
func (p *Pipeline) resolve(ctx context.Context, set *v1.StageSet, stage *PinnedStage) (source.Pin, error) {
	ctx, end := p.step(ctx, "source", slog.String("stage", stage.Stage.Name))
	defer end()
	return p.Resolver.Resolve(ctx, stage.Local, stage.Stage.SourceRef, set.Namespace)
}

// inStage names stage and account in a failure's text.
func inStage(err error, stage *PinnedStage) error {
	failed := failure.From(err).InStage(stage.Stage.Name)
	failed.Err = fmt.Errorf("stage %s, as %s: %w", stage.Stage.Name, stage.Target.Identity(), errors.Unwrap(failed))
	return failed
}

package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

const (
	// settle is how long the store waits for more changes before it compiles: who applies a folder of policies makes many.
	settle = 200 * time.Millisecond
	// firstRetry and lastRetry bound how long it waits before it looks again for a kind that the cluster does not serve.
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
	// firstCalm and lastCalm bound how long other parameters make no other Set after they have made one: longer and longer for
	// those who do not stop. Who may write parameters could keep all releases busy otherwise.
	firstCalm = time.Second
	lastCalm  = 30 * time.Second
)

// Options are what a Store is made of. All of them but the namespaces and the metrics are required.
type Options struct {
	// BuiltIn are the compiled built-in policies, which hold whatever is stored.
	BuiltIn *policies.Set
	// Namespaces are those whose StageSets the policies are about; none is all of them. Parameters that are in the namespaces
	// of the StageSets are watched there and nowhere else.
	Namespaces []string
	// Cache watches StageSetPolicies; its scheme knows them.
	Cache cache.Cache
	// Mapper tells which kinds the cluster serves. It looks again for those that it does not know.
	Mapper meta.RESTMapper
	// Dynamic reads parameters, with the process's own account.
	Dynamic dynamic.Interface
	Clock   clock.Clock
	Logger  logr.Logger
	// Metrics measures; nil measures nothing.
	Metrics *Metrics
}

// Store holds the policies of a cluster. The manager runs it, as Start.
type Store struct {
	options Options
	params  *params
	current atomic.Pointer[Snapshot]
	ready   chan struct{}
	// stored and read tell run that policies, or parameters, have changed.
	stored, read chan struct{}

	mu          sync.Mutex
	subscribers []chan struct{}
}

// Snapshot is what holds at one moment. Nothing in it is ever changed.
type Snapshot struct {
	// Set are all policies, those that are built in and those that are stored.
	Set *policies.Set
	// Stored are the policies that are stored, sorted by name, as they are compiled into Set.
	Stored []v1alpha1.StageSetPolicy
	// Problems is everything that is wrong with the stored ones.
	Problems policies.Problems
}

// New makes a Store that holds nothing until it is started.
func New(options Options) *Store {
	if options.Metrics != nil {
		options.BuiltIn = options.BuiltIn.Observed(options.Metrics)
	}
	s := &Store{
		options: options,
		ready:   make(chan struct{}),
		stored:  make(chan struct{}, 1),
		read:    make(chan struct{}, 1),
	}
	s.params = newParams(options, func() { signal(s.read) })
	return s
}

// Set are the policies that hold now; nil before all of them have been compiled for the first time. It is another one
// whenever a policy or a parameter has changed.
func (s *Store) Set() *policies.Set { return s.Snapshot().Set }

// Snapshot is what holds now; it is empty before all policies have been compiled for the first time.
func (s *Store) Snapshot() Snapshot {
	if now := s.current.Load(); now != nil {
		return *now
	}
	return Snapshot{}
}

// Params implements policies.ParamLookup: the parameters that the policies of the Set have now.
func (s *Store) Params(ctx context.Context, query policies.ParamQuery) ([]*unstructured.Unstructured, error) {
	return s.params.Params(ctx, query)
}

// Wait waits until there is a Set. The error is that of ctx.
func (s *Store) Wait(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting until all policies are compiled: %w", ctx.Err())
	}
}

// Ready is a readiness check that fails until there is a Set.
func (s *Store) Ready(*http.Request) error {
	if s.Set() == nil {
		return errors.New("the policies are not compiled yet")
	}
	return nil
}

// Subscribe is a channel that tells of every change of the Set, and of the parameters that it reads. Changes that come while
// nobody receives are told once.
func (s *Store) Subscribe() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	subscriber := make(chan struct{}, 1)
	s.subscribers = append(s.subscribers, subscriber)
	return subscriber
}

func (s *Store) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, subscriber := range s.subscribers {
		signal(subscriber)
	}
}

// NeedLeaderElection is false: every replica has policies.
func (s *Store) NeedLeaderElection() bool { return false }

// Start watches and compiles until ctx is done. The Cache must be running.
func (s *Store) Start(ctx context.Context) error {
	defer s.params.stop()
	if !s.waitServed(ctx) {
		return nil
	}
	informer, err := s.options.Cache.GetInformer(ctx, &v1alpha1.StageSetPolicy{})
	if err != nil {
		return fmt.Errorf("watching StageSetPolicies: %w", err)
	}
	changed := func() { signal(s.stored) }
	handling, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return fmt.Errorf("watching StageSetPolicies: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(handling) }()
	if !toolscache.WaitForCacheSync(ctx.Done(), handling.HasSynced) {
		return nil
	}
	return s.run(ctx)
}

// waitServed waits until the cluster serves StageSetPolicies, and reports false if ctx ended before. Where it does not, the
// built-in policies hold alone: there can be no others.
func (s *Store) waitServed(ctx context.Context) bool {
	kind := v1alpha1.GroupVersion.WithKind("StageSetPolicy")
	pause := firstRetry
	for {
		_, err := s.options.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
		switch {
		case err == nil:
			return true
		case !meta.IsNoMatchError(err):
			// It may well be served: nothing is published that could lack policies.
			s.options.Logger.Error(err, "cannot find out whether StageSetPolicies are served; trying again")
		case s.Set() == nil:
			s.options.Logger.Info("StageSetPolicy is not served by this cluster (its CustomResourceDefinition is not installed):" +
				" only the built-in policies hold")
			s.publish(Snapshot{Set: s.options.BuiltIn})
		}
		if !pauseFor(ctx, s.options.Clock, pause) {
			return false
		}
		pause = min(2*pause, lastRetry)
	}
}

// run compiles what is stored, and again after each change.
func (s *Store) run(ctx context.Context) error {
	var calm calm
	for otherParams := false; ; {
		if err := s.compile(ctx, otherParams); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if otherParams {
			calm.begin(s.options.Clock.Now())
		}
		var changed bool
		if otherParams, changed = s.await(ctx, calm.left(s.options.Clock.Now())); !changed {
			return nil
		}
	}
}

// await waits for a change, and reports false if ctx ended first. That there are other parameters is no change before calm has
// passed: evaluation reads them at once nevertheless, only who has judged something before is told later.
func (s *Store) await(ctx context.Context, calm time.Duration) (otherParams, changed bool) {
	read, calmed := s.read, (<-chan time.Time)(nil)
	if calm > 0 {
		read, calmed = nil, s.options.Clock.After(calm)
	}
	for !changed {
		select {
		case <-ctx.Done():
			return false, false
		case <-calmed:
			read, calmed = s.read, nil
		case <-s.stored:
			changed = true
		case <-read:
			otherParams, changed = true, true
		}
	}
	if !pauseFor(ctx, s.options.Clock, settle) {
		return false, false
	}
	select {
	case <-read:
		otherParams = true
	default:
	}
	return otherParams, true
}

// calm is the time after other parameters have made another Set.
type calm struct {
	until time.Time
	pause time.Duration
}

// begin begins it: it is twice as long as the one before if that has only just ended.
func (c *calm) begin(now time.Time) {
	if now.Sub(c.until) < c.pause {
		c.pause = min(2*c.pause, lastCalm)
	} else {
		c.pause = firstCalm
	}
	c.until = now.Add(c.pause)
}

// left is how much of it is left; zero or less if it is over.
func (c *calm) left(now time.Time) time.Duration { return c.until.Sub(now) }

// compile publishes what is stored now, unless that is what is published already. With other parameters the same policies
// are another Set: who has judged something by the old one has to judge it again.
func (s *Store) compile(ctx context.Context, otherParams bool) error {
	var list v1alpha1.StageSetPolicyList
	if err := s.options.Cache.List(ctx, &list); err != nil {
		return fmt.Errorf("listing StageSetPolicies: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.StageSetPolicy) int { return strings.Compare(a.Name, b.Name) })
	before := s.Snapshot()
	if before.Set != nil && !otherParams && slices.EqualFunc(before.Stored, list.Items, sameText) {
		return nil
	}
	known := before.Set
	if known == nil {
		known = s.options.BuiltIn
	}
	set, err := known.With(ctx, list.Items, s.params)
	var problems policies.Problems
	if err != nil && !errors.As(err, &problems) {
		return fmt.Errorf("compiling the stored policies: %w", err)
	}
	// Both old and new parameters are watched while one set takes the place of the other.
	wanted := selections(list.Items, problems, s.options.Namespaces)
	s.params.add(ctx, wanted)
	s.publish(Snapshot{Set: set, Stored: list.Items, Problems: problems})
	s.params.retain(wanted)
	if !otherParams {
		s.log(before.Problems, problems, len(list.Items))
	}
	return nil
}

// sameText tells whether a and b compile to the same: what is not their specification, such as a status, does not matter.
func sameText(a, b v1alpha1.StageSetPolicy) bool {
	return a.Name == b.Name && a.UID == b.UID && a.Generation == b.Generation
}

func (s *Store) publish(now Snapshot) {
	before := s.current.Swap(&now)
	if before == nil {
		before = &Snapshot{Set: s.options.BuiltIn}
		close(s.ready)
	}
	if s.options.Metrics != nil {
		s.options.Metrics.published(before.Set.Policies(), now.Set.Policies())
	}
	s.notify()
}

// log says which policies hold, and each problem once.
func (s *Store) log(before, now policies.Problems, stored int) {
	s.options.Logger.Info("policies hold", "stored", stored, "problems", len(now))
	for _, problem := range now {
		if !slices.Contains(before, problem) {
			s.options.Logger.Info("policy is broken, its failurePolicy decides in its place", "problem", problem.String())
		}
	}
}

// signal leaves a note for the receiver, who has one already or gets one.
func signal(receiver chan<- struct{}) {
	select {
	case receiver <- struct{}{}:
	default:
	}
}

// pauseFor reports false if ctx ended first.
func pauseFor(ctx context.Context, clock clock.Clock, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-clock.After(pause):
		return true
	}
}

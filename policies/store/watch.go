package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	toolscache "k8s.io/client-go/tools/cache"
)

// watch follows the objects of one selection.
type watch struct {
	selection
	options Options
	changed func()
	cancel  context.CancelFunc
	done    chan struct{}
	// served is nil until the kind is known to be served.
	served atomic.Pointer[served]

	mu sync.Mutex
	// unknown tells that it was not known how the objects are reached: what was judged then is to be judged again.
	unknown bool
	// looking is closed when it is known whether the kind is served; nil if nobody is looking. Until missingUntil it is not,
	// because of missing.
	looking      chan struct{}
	missing      error
	missingUntil time.Time
	answers      map[string]answer
	// changes counts what was told, so that no answer is kept that is older.
	changes int
}

// served is how the objects are reached.
type served struct {
	resource   dynamic.NamespaceableResourceInterface
	gvr        schema.GroupVersionResource
	namespaced bool
	// informer is nil if nothing is watched.
	informer toolscache.SharedIndexInformer
}

// answer is what the API server said.
type answer struct {
	until   time.Time
	objects []*unstructured.Unstructured
	// bytes is about how large they are.
	bytes int
	err   error
}

// in are the objects of a namespace; of all if it is empty, or the kind has none.
func (s *served) in(namespace string) dynamic.ResourceInterface {
	if namespace == "" || !s.namespaced {
		return s.resource
	}
	return s.resource.Namespace(namespace)
}

func newWatch(s selection, options Options, changed func()) *watch {
	return &watch{selection: s, options: options, changed: changed, answers: map[string]answer{}}
}

// start watches until stop, or until ctx is done.
func (w *watch) start(ctx context.Context) {
	ctx, w.cancel = context.WithCancel(ctx)
	w.done = make(chan struct{})
	go func() {
		defer close(w.done)
		w.run(ctx)
	}()
}

func (w *watch) stop() {
	w.cancel()
	<-w.done
}

// run watches until ctx is done. It begins again where the kind is not served yet, which a CustomResourceDefinition may
// change at any time, and where it is not served or the account may not watch it any more.
func (w *watch) run(ctx context.Context) {
	logger := w.options.Logger.WithValues("kind", w.kind.String(), "namespace", w.namespace, "name", w.name,
		"selector", w.selector)
	said := ""
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		synced, err := w.follow(ctx, logger)
		if ctx.Err() != nil {
			return
		}
		if synced {
			said, pause = "", firstRetry
		}
		if said != err.Error() {
			said = err.Error()
			logger.Info("parameters of policies cannot be watched; trying again", "err", said)
		}
		if !pauseFor(ctx, w.options.Clock, pause) {
			return
		}
	}
}

// follow watches until ctx is done, or until that cannot go on: the error says why. What was watched is not used any longer
// then, because nobody knows whether it still is so. It reports whether anything was watched at all.
func (w *watch) follow(ctx context.Context, logger logr.Logger) (bool, error) {
	found, err := w.resolve()
	if meta.IsNoMatchError(err) {
		w.served.Store(nil)
	}
	unknown := w.fail(err != nil)
	if err != nil {
		return false, w.unresolved(err)
	}
	w.served.Store(found)
	if unknown {
		w.tell()
	}
	if err := w.fits(ctx, found); err != nil {
		return false, err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	informer := w.informer(found)
	trouble := func(_ context.Context, _ *toolscache.Reflector, err error) {
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			end(err)
			return
		}
		logger.Info("watching parameters of policies was interrupted", "err", err.Error())
	}
	_, err = informer.AddEventHandler(w.handler(end))
	err = errors.Join(err, informer.SetTransform(slim), informer.SetWatchErrorHandlerWithContext(trouble))
	if err != nil {
		return false, err
	}
	watching := *found
	watching.informer = informer
	w.served.Store(&watching)
	informer.RunWithContext(ctx)
	w.served.Store(found)
	synced := informer.HasSynced()
	if synced {
		w.tell()
	}
	return synced, context.Cause(ctx)
}

// fail sets whether it is known how the objects are reached, and tells whether it was not.
func (w *watch) fail(now bool) (before bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, w.unknown = w.unknown, now
	return before
}

// tell says that the parameters may be others, and forgets what the API server said of them before.
func (w *watch) tell() {
	w.mu.Lock()
	w.changes++
	clear(w.answers)
	w.mu.Unlock()
	w.changed()
}

func version(object any) string {
	if u, ok := object.(*unstructured.Unstructured); ok {
		return u.GetResourceVersion()
	}
	return ""
}

// resolve finds out how the objects are reached. The error is that of the mapper.
func (w *watch) resolve() (*served, error) {
	mapping, err := w.options.Mapper.RESTMapping(w.kind.GroupKind(), w.kind.Version)
	if err != nil {
		return nil, err
	}
	return &served{
		resource:   w.options.Dynamic.Resource(mapping.Resource),
		gvr:        mapping.Resource,
		namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace,
	}, nil
}

// unresolved says why it is not known how the objects are reached.
func (w *watch) unresolved(err error) error {
	if meta.IsNoMatchError(err) {
		return w.notServed()
	}
	return fmt.Errorf("finding out how kind %s is served: %w", w.kind.Kind, err)
}

// informer watches the selection and no object besides, so that memory is bounded by what policies read.
func (w *watch) informer(found *served) toolscache.SharedIndexInformer {
	namespace := w.namespace
	if !found.namespaced {
		namespace = ""
	}
	return dynamicinformer.NewFilteredDynamicInformer(w.options.Dynamic, found.gvr, namespace, 0,
		toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc}, w.narrow).Informer()
}

func (w *watch) narrow(options *metav1.ListOptions) {
	options.LabelSelector = w.selector
	if w.name != "" {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String()
	}
}

// slim drops what no expression should depend on.
func slim(object any) (any, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		u.SetManagedFields(nil)
	}
	return object, nil
}

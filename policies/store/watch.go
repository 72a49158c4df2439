package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/stageset/stageset/policies"
)

const (
	// answerLife is how long an answer of the API server is used again where the watch has none.
	answerLife = 2 * time.Second
	// maxAnswers bounds the answers that are kept: there is one for each namespace that asks.
	maxAnswers = 1024
	// maxListed bounds what is read at once; with more, a policy is not evaluated anyway.
	maxListed = 100
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

	mu      sync.Mutex
	answers map[string]answer
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
	err     error
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

// run waits until the kind is served, which a CustomResourceDefinition may bring at any time, and watches then.
func (w *watch) run(ctx context.Context) {
	logger := w.options.Logger.WithValues("kind", w.kind.String(), "namespace", w.namespace, "name", w.name,
		"selector", w.selector)
	found, err := w.resolve()
	for pause := firstRetry; err != nil; pause = min(2*pause, lastRetry) {
		logger.Info("parameters of policies cannot be watched; looking again", "error", err.Error())
		if !pauseFor(ctx, w.options.Clock, pause) {
			return
		}
		found, err = w.resolve()
	}
	informer := w.informer(found)
	trouble := func(_ context.Context, _ *toolscache.Reflector, err error) {
		logger.Info("watching parameters of policies was interrupted", "error", err.Error())
	}
	if err := errors.Join(informer.SetTransform(slim), informer.SetWatchErrorHandlerWithContext(trouble)); err != nil {
		logger.Error(err, "parameters of policies are not watched")
		return
	}
	forget := func() {
		w.forget()
		w.changed()
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { forget() },
		UpdateFunc: func(any, any) { forget() },
		DeleteFunc: func(any) { forget() },
	})
	if err != nil {
		logger.Error(err, "parameters of policies are not watched")
		return
	}
	watching := *found
	watching.informer = informer
	w.served.Store(&watching)
	forget()
	informer.RunWithContext(ctx)
}

// resolve finds out how the objects are reached.
func (w *watch) resolve() (*served, error) {
	mapping, err := w.options.Mapper.RESTMapping(w.kind.GroupKind(), w.kind.Version)
	switch {
	case meta.IsNoMatchError(err):
		return nil, fmt.Errorf("kind %s of %s is not served by this cluster", w.kind.Kind, w.kind.GroupVersion())
	case err != nil:
		return nil, fmt.Errorf("finding out how kind %s is served: %w", w.kind.Kind, err)
	}
	found := &served{
		resource:   w.options.Dynamic.Resource(mapping.Resource),
		gvr:        mapping.Resource,
		namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace,
	}
	w.served.Store(found)
	return found, nil
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

// find are the objects that query selects, sorted by name.
func (w *watch) find(ctx context.Context, query policies.ParamQuery) ([]*unstructured.Unstructured, error) {
	found := w.served.Load()
	if found == nil {
		return nil, fmt.Errorf("kind %s of %s is not served by this cluster", w.kind.Kind, w.kind.GroupVersion())
	}
	namespace := query.Namespace
	if !found.namespaced {
		namespace = ""
	}
	if found.informer != nil && found.informer.HasSynced() {
		if objects := watched(found.informer.GetIndexer(), namespace); len(objects) > 0 {
			return objects, nil
		}
	}
	return w.ask(ctx, found, namespace)
}

// watched are the objects of a namespace that an informer of one selection has.
func watched(indexer toolscache.Indexer, namespace string) []*unstructured.Unstructured {
	items, err := indexer.ByIndex(toolscache.NamespaceIndex, namespace)
	if err != nil {
		return nil // there is that index
	}
	objects := make([]*unstructured.Unstructured, 0, len(items))
	for _, item := range items {
		if object, ok := item.(*unstructured.Unstructured); ok {
			objects = append(objects, object)
		}
	}
	return sorted(objects)
}

// ask asks the API server: the watch may lag, or be refused. What it says is used for a moment, so that what is missing, or
// refused, costs a request now and then, and not one for each evaluation.
func (w *watch) ask(ctx context.Context, found *served, namespace string) ([]*unstructured.Unstructured, error) {
	now := w.options.Clock.Now()
	w.mu.Lock()
	known, ok := w.answers[namespace]
	w.mu.Unlock()
	if ok && now.Before(known.until) {
		return known.objects, known.err
	}
	objects, err := w.read(ctx, found, namespace)
	if err != nil && ctx.Err() != nil {
		return nil, err // that says nothing about the next who asks
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.answers) >= maxAnswers {
		clear(w.answers)
	}
	w.answers[namespace] = answer{until: now.Add(answerLife), objects: objects, err: err}
	return objects, err
}

func (w *watch) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.answers)
}

// read reads the objects of a namespace from the API server.
func (w *watch) read(ctx context.Context, found *served, namespace string) ([]*unstructured.Unstructured, error) {
	var from dynamic.ResourceInterface = found.resource
	if namespace != "" {
		from = found.resource.Namespace(namespace)
	}
	if w.name != "" {
		object, err := from.Get(ctx, w.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, w.refused(err, "get", namespace)
		}
		return []*unstructured.Unstructured{object}, nil
	}
	list, err := from.List(ctx, metav1.ListOptions{LabelSelector: w.selector, Limit: maxListed})
	if err != nil {
		return nil, w.refused(err, "list", namespace)
	}
	objects := make([]*unstructured.Unstructured, 0, len(list.Items))
	for i := range list.Items {
		objects = append(objects, &list.Items[i])
	}
	return sorted(objects), nil
}

// refused says what to do about a missing permission, without what the API server says about our account.
func (w *watch) refused(err error, verb, namespace string) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("this installation may not %s %s in namespace %q: policies.paramResources of the chart allows it",
		verb, w.kind.Kind, namespace)
}

// slim drops what no expression should depend on.
func slim(object any) (any, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		u.SetManagedFields(nil)
	}
	return object, nil
}

func sorted(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	slices.SortFunc(objects, func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	return objects
}

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// find are the objects that query selects, sorted by name.
func (w *watch) find(ctx context.Context, query policies.ParamQuery) ([]*unstructured.Unstructured, error) {
	found, err := w.reach(ctx)
	if err != nil {
		return nil, err
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

// reach is how the objects are reached. Who asks before the watch has found out does not take that for an answer, but looks
// too: once for all who ask, and not again for a moment.
func (w *watch) reach(ctx context.Context) (*served, error) {
	if found := w.served.Load(); found != nil {
		return found, nil
	}
	w.mu.Lock()
	if w.looking == nil {
		if w.missing != nil && w.options.Clock.Now().Before(w.missingUntil) {
			defer w.mu.Unlock()
			return nil, w.missing
		}
		w.looking = make(chan struct{})
		go w.look() // which nothing but the mapper can end
	}
	looking := w.looking
	w.mu.Unlock()
	select {
	case <-looking:
	case <-ctx.Done():
		return nil, w.unresolved(ctx.Err())
	}
	if found := w.served.Load(); found != nil {
		return found, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.missing == nil {
		return nil, w.notServed() // because that is what the watch has found out meanwhile
	}
	return nil, w.missing
}

// look looks for the kind, for all who wait in reach. What the watch finds out meanwhile holds.
func (w *watch) look() {
	found, err := w.resolve()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missing = nil
	if err != nil {
		w.missing, w.missingUntil, w.unknown = w.unresolved(err), w.options.Clock.Now().Add(answerLife), true
	} else {
		w.served.CompareAndSwap(nil, found)
	}
	close(w.looking)
	w.looking = nil
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
	asked := w.changes
	w.mu.Unlock()
	if ok && now.Before(known.until) {
		return known.objects, known.err
	}
	objects, err := w.read(ctx, found, namespace)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return nil, err // that says nothing about the next who asks
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changes != asked {
		return objects, err
	}
	w.keep(namespace, answer{until: now.Add(answerLife), objects: objects, bytes: weigh(objects), err: err})
	return objects, err
}

// read reads the objects of a namespace from the API server.
func (w *watch) read(ctx context.Context, found *served, namespace string) ([]*unstructured.Unstructured, error) {
	from := found.in(namespace)
	if w.name != "" {
		object, err := from.Get(ctx, w.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
			return nil, nil
		case err != nil:
			return nil, w.failed(err, "get", namespace)
		}
		return []*unstructured.Unstructured{object}, nil
	}
	list, err := from.List(ctx, metav1.ListOptions{LabelSelector: w.selector, Limit: maxListed})
	if err != nil {
		return nil, w.failed(err, "list", namespace)
	}
	objects := make([]*unstructured.Unstructured, 0, len(list.Items))
	for i := range list.Items {
		list.Items[i].SetManagedFields(nil)
		objects = append(objects, &list.Items[i])
	}
	if weigh(objects) > maxAnswerBytes {
		return nil, errTooLarge
	}
	return sorted(objects), nil
}

// failed says what to do about a missing permission, without what the API server says about our account, and that a kind is
// not served any more.
func (w *watch) failed(err error, verb, namespace string) error {
	switch {
	case apierrors.IsNotFound(err):
		return w.notServed()
	case apierrors.IsForbidden(err):
		return fmt.Errorf("this installation may not %s %s in namespace %q: policies.paramResources of the chart allows it",
			verb, w.kind.Kind, namespace)
	default:
		return err
	}
}

func (w *watch) notServed() error {
	return fmt.Errorf("kind %s of %s is not served by this cluster", w.kind.Kind, w.kind.GroupVersion())
}

func sorted(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	slices.SortFunc(objects, func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	return objects
}

package store

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
)

const (
	// maxWatched and maxWatchedBytes bound what is kept of one selection: it may be in all namespaces, and tenants may write
	// there. Of what is more nothing is watched: it is read when it is asked for.
	maxWatched      = 10_000
	maxWatchedBytes = 64 << 20
	// maxAnswerBytes bounds what one evaluation reads, and all answers that are kept of one selection.
	maxAnswerBytes = 16 << 20
)

var (
	errTooMuch = errors.New("there are more than 10,000 objects, or more than 64 MiB: each is read when it is asked for, and who " +
		"was judged by one that has changed is not judged again before its next pass")
	errTooLarge = errors.New("they are larger than 16 MiB together")
)

// tally is how much is kept.
type tally struct{ objects, bytes int }

// add adds object, or takes it away if sign is -1.
func (t *tally) add(object any, sign int) {
	t.objects += sign
	if u, ok := object.(*unstructured.Unstructured); ok {
		t.bytes += sign * weight(u.Object)
	}
}

func (t *tally) tooMuch() bool { return t.objects > maxWatched || t.bytes > maxWatchedBytes }

// weight is about how many bytes value takes.
func weight(value any) int {
	const word = 16
	all := word
	switch typed := value.(type) {
	case string:
		all += len(typed)
	case []any:
		for _, item := range typed {
			all += weight(item)
		}
	case map[string]any:
		for key, item := range typed {
			all += len(key) + word + weight(item)
		}
	}
	return all
}

// fits finds out whether the selection can be watched, before an informer lists all of it: page by page, of which none is
// kept.
func (w *watch) fits(ctx context.Context, found *served) error {
	options := metav1.ListOptions{Limit: maxListed}
	w.narrow(&options)
	var counted tally
	for {
		list, err := found.in(w.namespace).List(ctx, options)
		if err != nil {
			return err
		}
		for i := range list.Items {
			counted.add(&list.Items[i], 1)
		}
		if counted.tooMuch() {
			return errTooMuch
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// handler tells of what an informer sees, and calls over when that is too much.
func (w *watch) handler(over func(error)) toolscache.ResourceEventHandler {
	var kept tally
	changed := func() {
		if kept.tooMuch() {
			over(errTooMuch)
		}
		w.tell()
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			kept.add(object, 1)
			changed()
		},
		UpdateFunc: func(before, after any) {
			if version(before) == version(after) {
				return // after an interruption everything is told again
			}
			kept.add(before, -1)
			kept.add(after, 1)
			changed()
		},
		DeleteFunc: func(object any) {
			if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = missed.Obj
			}
			kept.add(object, -1)
			changed()
		},
	}
}

// keep keeps an answer for a moment, unless all would be too large together.
func (w *watch) keep(namespace string, said answer) {
	kept, now := said.bytes, w.options.Clock.Now()
	for of, other := range w.answers {
		if !now.Before(other.until) {
			delete(w.answers, of)
			continue
		}
		kept += other.bytes
	}
	if kept > maxAnswerBytes || len(w.answers) >= maxAnswers {
		clear(w.answers)
	}
	w.answers[namespace] = said
}

// weigh is about how many bytes objects take.
func weigh(objects []*unstructured.Unstructured) int {
	all := 0
	for _, object := range objects {
		all += weight(object.Object)
	}
	return all
}

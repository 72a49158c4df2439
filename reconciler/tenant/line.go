package tenant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

const (
	// patience is how soon a cluster answers that is not slow.
	patience = 3 * time.Second
	// callTimeout bounds a call.
	callTimeout = 10 * time.Second
	// callMoment is how long a pass itself waits for a call: long for a cluster that answers, however far away it is, and short
	// for a worker.
	callMoment = 500 * time.Millisecond
	// callsInFlight is how many calls there may be at once, of which a namespace has a quarter, and callsOfNamespace how many
	// a namespace may have with those that wait for their turn, which they do for turnTimeout.
	callsInFlight    = 256
	callsOfNamespace = 256
	turnTimeout      = time.Minute
	// openFor is for how long a cluster that has answered is believed to be there.
	openFor = time.Minute
	// closedFor is for how long nobody calls again where nobody has answered.
	closedFor = 15 * time.Second
	// slowFor is for how long a cluster is taken for slow that has been.
	slowFor = 10 * time.Minute
	// wakeTimeout bounds how long a call that is over waits for those that it wakes to hear of it.
	wakeTimeout = 10 * time.Second
)

// line is whether another cluster answers the accounts of one namespace, and how soon: others have their own, so that nobody
// who makes a cluster hang for itself keeps others from it. Before a pass sends requests there, somebody calls. A call holds
// no worker, and there is one at a time: whoever is dead is found out beside the passes. Safe for concurrent use.
type line struct {
	*lines
	namespace string

	mu sync.Mutex
	// open and slow are until when the cluster is believed to be there, and to be slow.
	open, slow time.Time
	// failed is why the line is closed, nil if it is not, and closed until when nobody calls again.
	failed error
	closed time.Time
	// calling is the call that is being made; nil if there is none.
	calling *call
}

// lines is what all lines have in common.
type lines struct {
	clock clock.PassiveClock
	turns *turns
	begun callCount
	// wake is told of StageSets whose passes did not wait for a call that is over.
	wake func(ctx context.Context, stageSet types.NamespacedName)
}

// call finds out whether a cluster answers.
type call struct {
	done chan struct{}
	// waiting are the StageSets to be woken when it is over: in any case where it is true, since their passes have left for
	// it, and else if it has news. line.mu guards it.
	waiting map[types.NamespacedName]bool
}

// callCount is how many calls of each namespace are made or wait for their turn. Its zero value is ready; safe for concurrent
// use.
type callCount struct {
	mu sync.Mutex
	of map[string]int
}

// add is true if the namespace may have another call.
func (c *callCount) add(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[namespace] >= callsOfNamespace {
		return false
	}
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[namespace]++
	return true
}

func (c *callCount) remove(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[namespace]--; c.of[namespace] == 0 {
		delete(c.of, namespace)
	}
}

// askFunc sends the request that a call consists of.
type askFunc func(context.Context) error

// sendFunc sends a request, and returns the body of a good answer.
type sendFunc func(context.Context) ([]byte, error)

// reach is nil if requests may be sent. Of a line that is closed the error says why. A pass in a hurry that would have to wait
// is postponed; the error is then Progressing (Waiting). A patient one waits for as long as a call takes.
func (l *line) reach(ctx context.Context, ask askFunc) error {
	pass := passOf(ctx)
	if pass == nil {
		return l.unattended()
	}
	wait := callMoment
	if pass.Patient {
		wait += callTimeout
	}
	moment, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		called, err := l.look(ctx, pass, ask)
		if called == nil {
			return err
		}
		select {
		case <-called.done:
			continue
		case <-moment.Done():
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if l.leave(called, pass) {
			return errUnheard()
		}
	}
}

// errUnheard is for passes that end before it is known whether the cluster answers.
func errUnheard() error {
	return failure.NewWaiting(v1.ReasonProgressing, callTimeout, "the cluster that kubeConfig leads to has yet to answer")
}

// errSlow is for passes that do not wait for the cluster.
func errSlow() error {
	return failure.NewWaiting(v1.ReasonProgressing, time.Second, "the cluster that kubeConfig leads to is slow")
}

// unattended lets everybody through when a closed line may be tried again: nobody calls for a context without a pass.
func (l *line) unattended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil && l.clock.Now().Before(l.closed) {
		return l.failed
	}
	l.failed = nil
	return nil
}

// look says what is known, or gives the call to wait for.
func (l *line) look(ctx context.Context, pass *Pass, ask askFunc) (*call, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	switch {
	case l.failed == nil && now.Before(l.open):
		if now.Before(l.slow) && pass.met() {
			return nil, errSlow()
		}
		return nil, nil
	case l.failed != nil && l.calling == nil && now.Before(l.closed):
		return nil, l.failed
	}
	called := l.begin(ctx, ask)
	switch {
	case l.failed != nil:
		if called != nil {
			called.tell(pass.StageSet)
		}
		return nil, l.failed
	case called == nil:
		pass.postponed.Store(true)
		return nil, errUnheard()
	}
	return called, nil
}

// begin is the call that is being made, or a new one; nil if the namespace has too many. It needs l.mu.
func (l *line) begin(ctx context.Context, ask askFunc) *call {
	if l.calling == nil && l.begun.add(l.namespace) {
		l.calling = &call{done: make(chan struct{}), waiting: map[types.NamespacedName]bool{}}
		go l.call(context.WithoutCancel(ctx), l.calling, ask)
	}
	return l.calling
}

// leave has a StageSet woken when the call is over, and its pass postponed; false if it is over.
func (l *line) leave(left *call, pass *Pass) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calling != left {
		return false
	}
	left.waiting[pass.StageSet] = true
	pass.postponed.Store(true)
	return true
}

func (l *line) call(ctx context.Context, made *call, ask askFunc) {
	told := l.attempt(ctx, made, ask)
	l.begun.remove(l.namespace)
	bounded, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	for stageSet := range told {
		l.wake(bounded, stageSet)
	}
}

// attempt makes a call when it is its turn, and gives the StageSets to wake. One whose turn does not come says nothing of the
// cluster.
func (l *line) attempt(ctx context.Context, made *call, ask askFunc) map[types.NamespacedName]bool {
	queued, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	done, err := l.turns.take(queued, l.namespace)
	if err != nil {
		return l.drop(made)
	}
	defer done()
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := l.clock.Now()
	err = ask(bounded)
	return l.land(made, err, l.clock.Since(began))
}

// drop ends a call that was not made, and gives the StageSets that try again: a line that is closed stays so.
func (l *line) drop(made *call) map[types.NamespacedName]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calling = nil
	close(made.done)
	return made.left()
}

// land ends a call, and gives the StageSets that it has news for. Whoever says no at once keeps nobody waiting: what is
// wrong is for the pass itself to find out.
func (l *line) land(made *call, err error, took time.Duration) (told map[types.NamespacedName]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calling = nil
	close(made.done)
	known := l.failed != nil
	if err != nil && took >= patience {
		l.close(err)
		if known {
			return made.left()
		}
		return made.waiting
	}
	l.answered(took)
	return made.waiting
}

// tell has a StageSet woken if the call has news, unless it is woken in any case. It needs line.mu.
func (c *call) tell(stageSet types.NamespacedName) {
	if _, known := c.waiting[stageSet]; !known {
		c.waiting[stageSet] = false
	}
}

// left are the StageSets whose passes have waited for the call, or for an answer that the call is about. It needs line.mu.
func (c *call) left() map[types.NamespacedName]bool {
	maps.DeleteFunc(c.waiting, func(_ types.NamespacedName, left bool) bool { return !left })
	return c.waiting
}

// answered needs l.mu.
func (l *line) answered(took time.Duration) {
	now := l.clock.Now()
	l.failed, l.open = nil, now.Add(openFor)
	if took >= patience {
		l.slow = now.Add(slowFor)
	}
}

// close needs l.mu.
func (l *line) close(err error) { l.failed, l.closed = err, l.clock.Now().Add(closedFor) }

// carry sends a request. One that is not answered in time closes the line, so that nobody waits for the next one either. A
// pass in a hurry waits less: it is postponed, and a call tells whether the cluster is slow or dead.
func (l *line) carry(ctx context.Context, timeout time.Duration, ask askFunc, send sendFunc) ([]byte, error) {
	pass := passOf(ctx)
	if err := l.passable(pass); err != nil {
		return nil, err
	}
	if pass.hurries() {
		timeout = min(timeout, patience)
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := l.clock.Now()
	answer, err := send(bounded)
	l.mu.Lock()
	defer l.mu.Unlock()
	took := l.clock.Since(began)
	switch late := bounded.Err() != nil || took >= patience; {
	case ctx.Err() != nil: // which says nothing of the cluster
	case late && !isAnswer(err):
		l.open, l.slow = time.Time{}, l.clock.Now().Add(slowFor)
		if pass.hurries() {
			pass.postponed.Store(true)
			if called := l.begin(ctx, ask); called != nil {
				called.waiting[pass.StageSet] = true
			}
		} else {
			pass.met()
			l.close(err)
		}
	default:
		l.answered(took)
		if late {
			pass.met()
		}
	}
	return answer, err
}

// isAnswer is true for what an API server has said, and false if nothing came from there.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return err == nil || errors.As(err, &status)
}

// passable is nil unless the line is closed, or the pass has ended.
func (l *line) passable(pass *Pass) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pass.hasEnded() {
		return context.DeadlineExceeded
	}
	return l.failed
}

// unreachable is what is said of a cluster whose line is closed.
func unreachable(server string, err error) error {
	return Explain(&unanswered{text: fmt.Sprintf("%s: %s", server, unansweredText(err)), err: err},
		"reach the cluster that kubeConfig leads to", Reasons{})
}

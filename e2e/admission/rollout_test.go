package admission_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// twoReplicas installs the program behind a balancer.
func twoReplicas(t *testing.T) (i *installation, first, second *replica) {
	t.Helper()
	i = install(t)
	i.installWebhooks(t)
	first = i.startAt(t, process.FreePort(t), "/readyz", "--drain-delay=3s")
	second = i.startAt(t, process.FreePort(t), "/readyz", "--drain-delay=3s")
	balance(t, i.port, first, second)
	return i, first, second
}

// load creates StageSets, as dry runs, from several clients at once until it is stopped.
type load struct {
	done   chan struct{}
	wait   sync.WaitGroup
	count  atomic.Int64
	mu     sync.Mutex
	failed []error
}

func (i *installation) load(t *testing.T, clients int) *load {
	t.Helper()
	l := &load{done: make(chan struct{})}
	for n := range clients {
		c, object := i.Client(t), i.stageSet(t, fmt.Sprintf("load-%d", n), validSpec)
		l.wait.Go(func() {
			for {
				select {
				case <-l.done:
					return
				default:
				}
				if err := c.Create(context.Background(), object.DeepCopy(), client.DryRunAll); err != nil {
					l.mu.Lock()
					l.failed = append(l.failed, err)
					l.mu.Unlock()
				}
				l.count.Add(1)
			}
		})
	}
	return l
}

// more waits until n more requests were answered.
func (l *load) more(t *testing.T, n int64) {
	t.Helper()
	want := l.count.Load() + n
	cluster.Eventually(t, func(context.Context) error {
		if got := l.count.Load(); got < want {
			return fmt.Errorf("%d requests so far, waiting for %d", got, want)
		}
		return nil
	})
}

// stop ends the load. Not one of its requests may have failed.
func (l *load) stop(t *testing.T) {
	t.Helper()
	close(l.done)
	l.wait.Wait()
	if len(l.failed) > 0 {
		t.Errorf("%d of %d requests failed, the first with: %v", len(l.failed), l.count.Load(), l.failed[0])
	}
}

// P-32: a roll-out is not noticed by anybody.
func TestNoRequestFailsWhileAReplicaStops(t *testing.T) {
	i, first, _ := twoReplicas(t)
	l := i.load(t, 8)
	l.more(t, 100)
	if err := first.Stop(); err != nil {
		t.Error(err)
	}
	l.more(t, 100)
	l.stop(t)
	if state := first.State(); state == nil || state.ExitCode() != 0 {
		t.Errorf("the replica ended with %v", state)
	}
	served := strings.Count(first.Output(), "msg=allowed")
	if served == 0 {
		t.Error("the replica that stopped never served, so that this test shows nothing")
	}
}

// P-38, P-40: the certificates are issued anew, CA included, and not one request fails over it.
func TestNoRequestFailsWhileTheCAIsReplaced(t *testing.T) {
	i, first, second := twoReplicas(t)
	before := [][]byte{served(t, first), served(t, second)}
	l := i.load(t, 8)
	l.more(t, 100)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: i.name, Name: i.name + "-admission-tls"}}
	if err := i.client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	secret.Data = nil
	if err := i.client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, func(context.Context) error {
		for n, r := range []*replica{first, second} {
			if string(served(t, r)) == string(before[n]) {
				return errors.New("a replica still serves the old certificate")
			}
		}
		return nil
	})
	l.more(t, 200)
	l.stop(t)
}

// served is the certificate that a replica serves.
func served(t *testing.T, r *replica) []byte {
	t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", r.port)
	connection, err := tls.Dial("tcp", address, &tls.Config{ServerName: "localhost", InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	return connection.ConnectionState().PeerCertificates[0].Raw
}

package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// inject runs the injector once, with the world's client or another.
func (w *world) inject(t *testing.T, other ...client.Client) reconcile.Result {
	t.Helper()
	i := &injector{options: w.options, client: w.client}
	if len(other) > 0 {
		i.client = other[0]
	}
	result, err := i.Reconcile(t.Context(), reconcile.Request{})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// wantBundles checks all webhooks at once.
func (w *world) wantBundles(t *testing.T, want ...authority) {
	t.Helper()
	var list []*x509.Certificate
	for _, ca := range want {
		list = append(list, ca.certificate)
	}
	bundle := string(encodeBundle(list...))
	if diff := cmp.Diff([]string{bundle, bundle, bundle}, w.bundles(t)); diff != "" {
		t.Errorf("caBundles of the three webhooks (-want +got):\n%s", diff)
	}
}

// wantRecord checks what the Secret says about the CAs before the current one; without any, that it says nothing.
func (w *world) wantRecord(t *testing.T, replaced time.Time, want ...authority) {
	t.Helper()
	record := map[string]string{}
	for _, ca := range want {
		record[keyPrevious] += string(ca.pem())
		record[keyPreviousTime] = replaced.Format(time.RFC3339)
	}
	got := map[string]string{}
	for key, value := range w.secret(t).Data {
		if key == keyPrevious || key == keyPreviousTime {
			got[key] = string(value)
		}
	}
	if diff := cmp.Diff(record, got); diff != "" {
		t.Errorf("record in the Secret (-want +got):\n%s", diff)
	}
}

// P-36, P-38: a CA that was replaced is trusted for a day, whoever emptied the Secret meanwhile, and then forgotten.
func TestBundleKeepsTheCABeforeForADay(t *testing.T) {
	w := newWorld(t)
	before, after := newAuthority(t, subject, noon.AddDate(1, 0, 0)), newAuthority(t, subject, noon.AddDate(1, 0, 0))
	w.inject(t) // the Secret is empty: there is nothing to write
	if diff := cmp.Diff([]string{"", "", ""}, w.bundles(t)); diff != "" {
		t.Errorf("caBundles without a CA (-want +got):\n%s", diff)
	}

	w.issue(t, before, "one.svc")
	if result := w.inject(t); result.RequeueAfter != 0 {
		t.Errorf("it looks again after %s", result.RequeueAfter)
	}
	w.wantBundles(t, before)
	w.wantRecord(t, time.Time{})

	w.change(t, func(secret *corev1.Secret) { secret.Data = nil })
	w.inject(t)
	w.wantBundles(t, before)

	w.issue(t, after, "one.svc")
	if result := w.inject(t); result.RequeueAfter != keepPrevious {
		t.Errorf("it looks again after %s, want %s", result.RequeueAfter, keepPrevious)
	}
	w.wantBundles(t, after, before)
	w.wantRecord(t, noon, before)

	w.clock.SetTime(noon.Add(keepPrevious - time.Minute))
	if result := w.inject(t); result.RequeueAfter != time.Minute {
		t.Errorf("it looks again after %s, want a minute", result.RequeueAfter)
	}
	w.wantBundles(t, after, before)
	w.wantRecord(t, noon, before)

	w.clock.SetTime(noon.Add(keepPrevious))
	if result := w.inject(t); result.RequeueAfter != 0 {
		t.Errorf("it looks again after %s", result.RequeueAfter)
	}
	w.wantBundles(t, after)
	w.wantRecord(t, time.Time{})
}

// A leader that is interrupted between the record and the bundles, or between both bundles, leaves nothing that another
// one would not continue, and the day begins only once.
func TestBundleIsFinishedByTheNextLeader(t *testing.T) {
	w := newWorld(t)
	before, after := newAuthority(t, subject, noon.AddDate(1, 0, 0)), newAuthority(t, subject, noon.AddDate(1, 0, 0))
	w.issue(t, before, "one.svc")
	w.inject(t)
	w.issue(t, after, "one.svc")
	dying := errors.New("interrupted")
	interrupted := interceptor.NewClient(w.client, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, a runtime.ApplyConfiguration, o ...client.ApplyOption) error {
			return dying
		},
	})
	_, err := (&injector{options: w.options, client: interrupted}).Reconcile(t.Context(), reconcile.Request{})
	if !errors.Is(err, dying) || !strings.Contains(err.Error(), "MutatingWebhookConfiguration "+w.options.Configuration) {
		t.Errorf("error %v, want one that names the configuration", err)
	}
	w.wantBundles(t, before)
	w.wantRecord(t, noon, before)

	w.clock.SetTime(noon.Add(time.Hour))
	half := interceptor.NewClient(w.client, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, a runtime.ApplyConfiguration, o ...client.ApplyOption) error {
			if named, ok := a.(interface{ GetKind() *string }); ok && *named.GetKind() == "ValidatingWebhookConfiguration" {
				return dying
			}
			return c.Apply(ctx, a, o...)
		},
	})
	_, err = (&injector{options: w.options, client: half}).Reconcile(t.Context(), reconcile.Request{})
	if !errors.Is(err, dying) {
		t.Errorf("error %v, want %v", err, dying)
	}
	both := string(encodeBundle(after.certificate, before.certificate))
	if diff := cmp.Diff([]string{both, both, string(before.pem())}, w.bundles(t)); diff != "" {
		t.Errorf("caBundles of the three webhooks (-want +got):\n%s", diff)
	}
	w.inject(t)
	w.wantBundles(t, after, before)
	w.wantRecord(t, noon, before)
}

// A leader whose watch lags behind does not take the new CA for the old one.
func TestBundleIsLeftAloneByALeaderThatLags(t *testing.T) {
	w := newWorld(t)
	before, after := newAuthority(t, subject, noon.AddDate(1, 0, 0)), newAuthority(t, subject, noon.AddDate(1, 0, 0))
	w.issue(t, before, "one.svc")
	w.inject(t)
	stale := w.secret(t)
	w.issue(t, after, "one.svc")
	w.inject(t)
	lagging := interceptor.NewClient(w.client, interceptor.Funcs{
		Get: func(
			ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, o ...client.GetOption,
		) error {
			if secret, ok := object.(*corev1.Secret); ok {
				stale.DeepCopyInto(secret)
				return nil
			}
			return c.Get(ctx, key, object, o...)
		},
	})
	w.inject(t, lagging)
	w.wantBundles(t, after, before)
	w.wantRecord(t, noon, before)
}

// Whoever wants a CA distrusted at once takes it out of the Secret.
func TestBundleLosesACAThatIsTakenOutOfTheSecret(t *testing.T) {
	w := newWorld(t)
	before, after := newAuthority(t, subject, noon.AddDate(1, 0, 0)), newAuthority(t, subject, noon.AddDate(1, 0, 0))
	w.issue(t, before, "one.svc")
	w.inject(t)
	w.issue(t, after, "one.svc")
	w.inject(t)
	w.change(t, func(secret *corev1.Secret) { delete(secret.Data, keyPrevious) })
	w.inject(t)
	w.wantBundles(t, after)
	w.wantRecord(t, time.Time{})
}

// P-34: what the rotator would not replace by itself is taken out of the Secret, also out of one that has the type for TLS,
// which must have its keys. What the rotator sees by itself is left to it.
func TestCertificateForOtherNamesIsTakenOut(t *testing.T) {
	ca := newAuthority(t, subject, noon.AddDate(1, 0, 0))
	for name, test := range map[string]struct {
		secretType corev1.SecretType
		names      []string
		now        time.Time
		out        bool
	}{
		"other names":              {corev1.SecretTypeOpaque, []string{"other.svc"}, noon, true},
		"other names, of type TLS": {corev1.SecretTypeTLS, []string{"other.svc"}, noon, true},
		"one name more":            {corev1.SecretTypeOpaque, []string{"one.svc", "two.svc"}, noon, false},
		"expired":                  {corev1.SecretTypeOpaque, []string{"one.svc"}, noon.AddDate(2, 0, 0), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.clock.SetTime(test.now)
			if err := w.client.Delete(t.Context(), w.secret(t)); err != nil {
				t.Fatal(err)
			}
			data := ca.data(t, test.names...)
			w.create(t, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.options.Secret.Namespace, Name: w.options.Secret.Name},
				Type:       test.secretType, Data: maps.Clone(data),
			})
			w.inject(t)
			if test.out {
				data[keyCertificate], data[keyPrivate] = []byte{}, []byte{}
			}
			if !maps.EqualFunc(data, w.secret(t).Data, bytes.Equal) {
				t.Errorf("taken out is expected: %t, but the Secret is otherwise", test.out)
			}
		})
	}
}

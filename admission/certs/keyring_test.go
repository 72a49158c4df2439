package certs

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// keyring makes one that reads from the API server without a cache.
func (w *world) keyring() *Keyring {
	k := NewKeyring(w.options)
	k.reader = w.client
	k.provider = &secretProvider{options: w.options, reader: w.client}
	return k
}

func look(t *testing.T, k *Keyring) time.Duration {
	t.Helper()
	result, err := k.Reconcile(t.Context(), reconcile.Request{})
	if err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter
}

// measure collects the metrics by name and kind, without problems that there never were.
func measure(t *testing.T, k *Keyring) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(k.Metrics()); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := strings.TrimPrefix(family.GetName(), "stageset_certificate_")
			for _, label := range metric.GetLabel() {
				name += " " + label.GetValue()
			}
			if counter := metric.GetCounter(); counter == nil || counter.GetValue() > 0 {
				out[name] = metric.GetGauge().GetValue() + counter.GetValue()
			}
		}
	}
	return out
}

// P-34, P-37: whatever happens to the Secret, the certificate in memory is served on, and it is counted.
func TestKeyringServesOnWithoutItsSecret(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(t *testing.T, w *world)
		problem string // empty when there is none to count
	}{
		"deleted": {func(t *testing.T, w *world) {
			if err := w.client.Delete(t.Context(), w.secret(t)); err != nil {
				t.Fatal(err)
			}
		}, problemMissing},
		"mangled": {func(t *testing.T, w *world) {
			w.change(t, func(secret *corev1.Secret) { secret.Data[keyPrivate] = []byte("mangled") })
		}, problemUnusable},
		"immutable": {func(t *testing.T, w *world) {
			w.change(t, func(secret *corev1.Secret) { secret.Immutable = ptr.To(true) })
		}, problemImmutable},
		"emptied": {func(t *testing.T, w *world) {
			w.change(t, func(secret *corev1.Secret) { secret.Data = nil })
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ca := newAuthority(t, subject, noon.Add(time.Hour))
			w.issue(t, ca, "one.svc")
			w.inject(t)
			k := w.keyring()
			if wait := look(t, k); wait != 0 {
				t.Errorf("it looks again after %s", wait)
			}
			before, err := k.GetCertificate(nil)
			if err != nil {
				t.Fatal(err)
			}
			test.happens(t, w)
			want := map[string]float64{
				"expiry_seconds ca": 3600, "expiry_seconds leaf": 3600, "expiry_seconds bundle": 3600, "trusted": 1,
			}
			for n := range 2 {
				wait, wantWait := look(t, k), time.Duration(0)
				if test.problem != "" {
					want["problems_total "+test.problem], wantWait = float64(n+1), problemInterval
				}
				if wait != wantWait {
					t.Errorf("it looks again after %s, want %s", wait, wantWait)
				}
				if diff := cmp.Diff(want, measure(t, k)); diff != "" {
					t.Errorf("metrics (-want +got):\n%s", diff)
				}
			}
			if after, err := k.GetCertificate(nil); err != nil || after != before {
				t.Errorf("it does not serve the same certificate any more (%v)", err)
			}
			if err := k.Ready(httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil)); err != nil {
				t.Errorf("readiness: %v", err)
			}
		})
	}
}

// P-35, P-37: readiness and metrics are about what the API server would make of the certificate now.
func TestKeyringIsReadyWhenTheBundlesVerifyIt(t *testing.T) {
	ours, other := newAuthority(t, subject, noon.Add(time.Hour)), newAuthority(t, subject, noon.Add(time.Hour))
	for name, test := range map[string]struct {
		served  bool
		bundle  authority // written into both configurations, if there is one
		now     time.Time
		want    string // part of the error; empty when it is ready
		metrics map[string]float64
	}{
		"nothing issued yet": {
			now: noon, want: errNotIssued.Error(), metrics: map[string]float64{"trusted": 0},
		},
		"no bundle": {
			served: true, now: noon, want: "the caBundle of two.example.com in MutatingWebhookConfiguration",
			metrics: map[string]float64{"expiry_seconds ca": 3600, "expiry_seconds leaf": 3600, "trusted": 0},
		},
		"bundle of another CA": {
			served: true, bundle: other, now: noon, want: "the caBundle of one.example.com in ValidatingWebhookConfiguration",
			metrics: map[string]float64{"expiry_seconds ca": 3600, "expiry_seconds leaf": 3600, "trusted": 0},
		},
		"trusted": {
			served: true, bundle: ours, now: noon.Add(time.Minute),
			metrics: map[string]float64{
				"expiry_seconds ca": 3540, "expiry_seconds leaf": 3540, "expiry_seconds bundle": 3540, "trusted": 1,
			},
		},
		"expired": {
			served: true, bundle: ours, now: noon.Add(2 * time.Hour), want: "expired",
			metrics: map[string]float64{"expiry_seconds ca": -3600, "expiry_seconds leaf": -3600, "trusted": 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.clock.SetTime(test.now)
			if test.served {
				w.issue(t, ours, "one.svc")
			}
			if test.bundle.certificate != nil {
				i := &injector{options: w.options, client: w.client}
				found, err := readConfigurations(t.Context(), w.client, w.options.Configuration)
				if err != nil {
					t.Fatal(err)
				}
				if err := i.inject(t.Context(), found, test.bundle.pem()); err != nil {
					t.Fatal(err)
				}
			}
			k := w.keyring()
			look(t, k)
			err := k.Ready(httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil))
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
			if diff := cmp.Diff(test.metrics, measure(t, k), cmpopts.EquateApprox(0, 0.001)); diff != "" {
				t.Errorf("metrics (-want +got):\n%s", diff)
			}
		})
	}
}

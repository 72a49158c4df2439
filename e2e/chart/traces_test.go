package chart_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"

	"github.com/stageset/stageset/api/crds"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/collector"
)

// authorities makes the ConfigMap with those of a collector's certificate that modes name.
func (r *release) authorities(t *testing.T, certificate []byte) {
	t.Helper()
	authorities := &corev1.ConfigMap{Data: map[string]string{"ca.crt": string(certificate)}}
	authorities.Namespace, authorities.Name = r.namespace, "collector-ca"
	if err := r.client.Create(t.Context(), authorities); err != nil {
		t.Fatal(err)
	}
}

// With the values of tracing, both programs send their spans to the collector, by TLS.
func TestTracesOfARelease(t *testing.T) {
	cluster.Shared(t).InstallCRDs(t, crds.FS)
	certificate, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	spans := collector.Start(t, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}})))
	r := prepare(t, "traced", fmt.Sprintf(
		"{crds: {install: false}, tracing: {endpoint: 'https://%s', caConfigMap: collector-ca}}", spans.Address))
	r.authorities(t, certificate)
	r.install(t)
	r.route(t)
	r.start(t, "admission")
	r.start(t, "reconciler")
	n := r.tenant(t)
	app := n.stageSet("app")
	revision := n.commit(t, "app", "1")
	n.create(t, app)
	n.ready(t, app, revision)
	cluster.Eventually(t, func(context.Context) error {
		found := map[string]bool{}
		for _, span := range spans.Spans() {
			found[span.Service+" "+span.Name] = true
		}
		for _, want := range []string{"stageset-admission /stagesets/validate", "stageset-reconciler reconcile"} {
			if !found[want] {
				return fmt.Errorf("no span is %s: %v", want, found)
			}
		}
		return nil
	})
}

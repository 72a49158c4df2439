package tenant

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/stageset/stageset/reconciler/dial"
	"github.com/stageset/stageset/reconciler/kubeconfig"
)

const (
	// maxEndpoints, maxConnections and maxLines bound what is remembered of other clusters. What is forgotten is made anew.
	maxEndpoints   = 256
	maxConnections = 512
	maxLines       = 2048
	// remoteInFlight is how many requests of all accounts together may be at one other cluster at once.
	remoteInFlight = 32
	// pingAfter and pingTimeout end connections whose server has vanished without a word.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
)

// remotes are the other clusters. Nothing of them is kept per credentials but connections with a client certificate: tokens
// go with every request by themselves. Safe for concurrent use.
type remotes struct {
	dialer    *dial.Dialer
	clock     clock.PassiveClock
	timeout   time.Duration
	userAgent string

	mu sync.Mutex
	// rights are those of everybody on all of them: how much is remembered is bounded for all together.
	rights *rights
	// answers are those about the kinds of all of them, bounded together.
	answers *answers
	// endpoints and clusters are kept by kubeconfig.Access.Endpoint and .Connection.
	endpoints, clusters *lru.Cache
	// lines are kept by lineOf.
	lines  *lru.Cache
	common *lines
}

// lineOf is a namespace whose accounts go to an endpoint.
type lineOf struct{ namespace, endpoint string }

// endpoint is what everybody shares who leads to the same server, which is verified by the same CA: nobody can give another
// one a wrong idea of it.
type endpoint struct {
	turns *turns
	kinds *kinds
}

func newRemotes(opts Options) *remotes {
	closeIdle := func(_ lru.Key, value any) { value.(*cluster).transport.(*http.Transport).CloseIdleConnections() }
	return &remotes{
		dialer: opts.Dialer, clock: opts.Clock, timeout: opts.RequestTimeout, userAgent: opts.Config.UserAgent,
		rights: newRights(opts.Clock), answers: newAnswers(remoteDiscovered),
		endpoints: lru.New(maxEndpoints), clusters: lru.NewWithEvictionFunc(maxConnections, closeIdle),
		lines: lru.New(maxLines), common: &lines{clock: opts.Clock, turns: newTurns(callsInFlight), wake: opts.Wake},
	}
}

// cluster is the one that access leads to.
func (r *remotes) cluster(access kubeconfig.Access) (*cluster, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found, known := r.clusters.Get(access.Connection()); known {
		return found.(*cluster), nil
	}
	shared := r.endpoint(access.Endpoint())
	transport, err := r.transport(access)
	if err != nil {
		return nil, err
	}
	config := dynamic.ConfigFor(&rest.Config{Host: access.Server, UserAgent: r.userAgent})
	config.QPS, config.RateLimiter = -1, nil
	made := &cluster{
		config: config, transport: transport, turns: shared.turns, timeout: r.timeout, kinds: shared.kinds,
		rights: r.rights,
	}
	r.clusters.Add(access.Connection(), made)
	return made, nil
}

// endpoint needs r.mu.
func (r *remotes) endpoint(key string) *endpoint {
	if found, known := r.endpoints.Get(key); known {
		return found.(*endpoint)
	}
	made := &endpoint{
		turns: newTurns(remoteInFlight), kinds: &kinds{clock: r.clock, answers: r.answers, endpoint: key},
	}
	r.endpoints.Add(key, made)
	return made
}

// line is whether the cluster that access leads to answers the accounts of a namespace.
func (r *remotes) line(namespace string, access kubeconfig.Access) *line {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := lineOf{namespace: namespace, endpoint: access.Endpoint()}
	if found, known := r.lines.Get(of); known {
		return found.(*line)
	}
	made := &line{lines: r.common, namespace: namespace}
	r.lines.Add(of, made)
	return made
}

// call asks the cluster something that it tells anybody at once if it is well. It shows nobody's credentials but the client
// certificate that connections have.
func (c *cluster) call(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.config.Host+"/readyz", nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", c.config.UserAgent)
	answer, err := c.transport.RoundTrip(request)
	if err == nil {
		discard(answer)
	}
	return err
}

// transport is the way to a server, by its proxy if there is one.
func (r *remotes) transport(access kubeconfig.Access) (*http.Transport, error) {
	transport := r.dialer.Transport()
	transport.DialContext = bounded(r.dialer.DialContext)
	transport.TLSHandshakeTimeout = handshakeTimeout
	transport.ResponseHeaderTimeout = 0 // an API server may take its time, which the timeout of the request bounds
	transport.DisableCompression = false
	transport.MaxConnsPerHost = 0 // turns bound the requests, of which a namespace has its share; connections would not
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	verification, err := verification(access)
	if err != nil {
		return nil, err
	}
	transport.TLSClientConfig = verification
	if access.Proxy != "" {
		proxy, err := url.Parse(access.Proxy)
		if err != nil {
			return nil, fmt.Errorf("proxy-url is not a URL")
		}
		transport.Proxy, transport.OnProxyConnectResponse = http.ProxyURL(proxy), acceptProxy
	}
	return transport, nil
}

// verification is how the server proves to be the right one, and with which certificate we do.
func verification(access kubeconfig.Access) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: access.ServerName, InsecureSkipVerify: access.Insecure}
	if access.CA != "" {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM([]byte(access.CA))
	}
	if access.Certificate != "" {
		pair, err := tls.X509KeyPair([]byte(access.Certificate), []byte(access.Key))
		if err != nil {
			return nil, fmt.Errorf("its client certificate cannot be used")
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

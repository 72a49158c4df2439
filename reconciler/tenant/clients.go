package tenant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/dial"
	"github.com/stageset/stageset/reconciler/failure"
)

// What Options that are left out mean.
const (
	defaultAccounts = 4096
	defaultInFlight = 64
	// maxAbroad is how many tokens for other clusters are kept: they are larger, by their audiences and CAs.
	maxAbroad = 1024
	// defaultRequestTimeout is a little more than the API server's own limit of a minute, so that its answer, which knows
	// what was slow (a webhook, say), comes before ours.
	defaultRequestTimeout = 65 * time.Second
)

// Options say how Clients reach the local API server.
type Options struct {
	// Config is the reconciler's own way to the local API server. Its credentials are used to request tokens and for
	// nothing else; its address, CA, proxy and user agent hold for the tenants' clients too. Required.
	Config *rest.Config
	// Own tells whether a StageSet in namespace that names no account is served with the reconciler's own identity; nil is
	// nowhere. Its credentials then reach what such a StageSet names, and nothing else.
	Own func(namespace string) bool
	// Clock tells when a token is due; nil is the real one.
	Clock clock.PassiveClock
	// Accounts is how many accounts' tokens are kept, the least recently used goes first; 0 is 4096.
	Accounts int
	// InFlight is how many requests of all accounts together may be at the target at once; 0 is 64. The accounts of one
	// namespace have a quarter of it, and one at least.
	InFlight int64
	// RequestTimeout is how long a single request may take, also one for a token; 0 is 65 s.
	RequestTimeout time.Duration
	// Dialer connects to other clusters; nil is one that admits no address of the reconciler's own machine.
	Dialer *dial.Dialer
	// Metrics measures; nil measures nothing.
	Metrics *Metrics
	// Wake is told of a StageSet when its pass did not wait for another cluster, and that has answered, or has not; it may
	// block until ctx is done. nil tells nobody.
	Wake func(ctx context.Context, stageSet types.NamespacedName)
	// InsecureTLS admits kubeconfigs that take any server for the right one.
	InsecureTLS bool
}

// Clients makes clients for the accounts of tenants. Those of one cluster share a connection pool, limits of requests in
// flight and what is known about the kinds that the cluster serves. Safe for concurrent use.
type Clients struct {
	cluster *cluster
	tokens  *tokens
	own     *own

	remotes *remotes
	// abroad are tokens for other clusters. They have a place of their own, so that no number of audiences takes that of
	// others.
	abroad      *tokens
	insecureTLS bool
}

// New prepares clients for the cluster of opts.Config. It sends nothing; an error means that the configuration is unusable.
func New(opts Options) (*Clients, error) {
	if opts.Config == nil {
		return nil, errors.New("tenant: no configuration for the local API server")
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	opts.Accounts = cmp.Or(opts.Accounts, defaultAccounts)
	opts.InFlight = cmp.Or(opts.InFlight, defaultInFlight)
	opts.RequestTimeout = cmp.Or(opts.RequestTimeout, defaultRequestTimeout)
	if opts.Dialer == nil {
		opts.Dialer = dial.New(nil)
	}
	if opts.Wake == nil {
		opts.Wake = func(context.Context, types.NamespacedName) {}
	}

	minter, err := newMinter(opts.Config)
	if err != nil {
		return nil, err
	}
	minter = opts.Metrics.counted(minter)
	shared, err := newCluster(opts)
	if err != nil {
		return nil, err
	}
	self, err := newOwn(opts)
	if err != nil {
		return nil, err
	}
	clients := &Clients{
		cluster: shared, tokens: newTokens(minter, opts), own: self,
		remotes: newRemotes(opts), insecureTLS: opts.InsecureTLS,
	}
	opts.Accounts = min(opts.Accounts, maxAbroad)
	clients.abroad = newTokens(clients.mintAbroad(minter), opts)
	clients.abroad.distrusts = true
	return clients, nil
}

// local is a client of the cluster that StageSets are in, which acts as the account; see Local.
func (c *Clients) local(ctx context.Context, account Account) (*Client, error) {
	if account.IsOwn() {
		transport, err := c.own.transport(account.Namespace)
		if err != nil {
			return nil, err
		}
		return c.cluster.client(account, transport)
	}
	if err := account.check(); err != nil {
		return nil, err
	}
	local := grant{account: account}
	token, err := c.tokens.get(ctx, local)
	if err != nil {
		return nil, Explain(err, fmt.Sprintf("wait for a token of service account %s", account), Reasons{})
	}
	client, err := c.cluster.client(account, &bearer{grant: local, tokens: c.tokens, next: c.cluster.transport})
	if err != nil {
		return nil, err
	}
	client.uid = token.uid
	return client, nil
}

// cluster is what the clients of one API server share, whichever account they act as.
type cluster struct {
	config    *rest.Config
	transport http.RoundTripper
	turns     *turns
	timeout   time.Duration
	kinds     *kinds
	rights    *rights
}

func newCluster(opts Options) (*cluster, error) {
	// Only what leads to the server is taken over: no token, certificate or wrapper of ours can reach a tenant's request.
	config := dynamic.ConfigFor(rest.AnonymousClientConfig(opts.Config))
	// The server's priority and fairness is the throttle; a second one here would only make tenants wait for each other.
	config.QPS, config.RateLimiter = -1, nil
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("tenant: connect to %s: %w", config.Host, err)
	}
	return &cluster{
		config:    config,
		transport: transport,
		turns:     newTurns(opts.InFlight),
		timeout:   opts.RequestTimeout,
		kinds:     &kinds{clock: opts.Clock, answers: newAnswers(localDiscovered)},
		rights:    newRights(opts.Clock),
	}, nil
}

// client acts as the account, which the transport identifies it as. It costs a few allocations and no connection, so it is
// made anew for every caller and never cached.
func (c *cluster) client(account Account, transport http.RoundTripper) (*Client, error) {
	httpClient := &http.Client{
		Transport: limited{next: transport},
		// A token must not follow a redirect to wherever somebody who answers in the server's place wants it.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	requests, err := rest.UnversionedRESTClientForConfigAndClient(c.config, httpClient)
	if err != nil {
		return nil, failure.NewTransient(v1.ReasonTargetUnreachable, "make a client for %s: %w", account.Identity(), err)
	}
	return &Client{cluster: c, requests: requests, account: account, caller: account.String()}, nil
}

// checkSegment refuses a value that would change the path of a URL it becomes a segment of.
func checkSegment(what, value string) error {
	if value == "" {
		return fmt.Errorf("its %s is empty", what)
	}
	if faults := rest.IsValidPathSegmentName(value); len(faults) > 0 {
		return fmt.Errorf("its %s %q is not valid: it %s", what, value, faults[0])
	}
	return nil
}

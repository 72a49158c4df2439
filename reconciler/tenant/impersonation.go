package tenant

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/kubeconfig"
)

// Target is a client that acts as the account on a cluster. On the one that StageSets are in it has a token of the account,
// as Local has. On another one it goes by what leads there, and impersonates the account: there is no object for it there,
// only its user name, which its groups follow from. Where no account is named, and the reconciler's own identity is allowed,
// it acts there as the user that it is led to. Every error is a *failure.Error, as of Local.
func (c *Clients) Target(ctx context.Context, to Destination, account Account) (*Client, error) {
	if !to.Remote() {
		return c.local(ctx, account)
	}
	if err := c.checkRemote(account); err != nil {
		return nil, err
	}
	shared, err := c.remotes.cluster(to.access)
	if err != nil {
		return nil, failure.NewStalled(v1.ReasonKubeConfigInvalid, "kubeConfig: %w", err)
	}
	line := c.remotes.line(account.Namespace, to.access)
	if err := line.reach(ctx, shared.call); err != nil {
		return nil, unreachable(to.access.Server, err)
	}
	authenticated, err := c.authenticated(ctx, to, shared.transport)
	if err != nil {
		return nil, err
	}
	user := &credentials{access: to.access, next: authenticated}
	client, err := shared.remote(account, user, line)
	if err != nil {
		return nil, err
	}
	client.server, client.caller = to.access.Server, client.caller+" "+to.Access()
	return client, nil
}

// checkRemote refuses an account that nothing on another cluster is done as.
func (c *Clients) checkRemote(account Account) error {
	if account.IsOwn() {
		return c.own.check(account.Namespace)
	}
	return account.check()
}

// remote is a client that acts on the cluster as the account, by way of the user, or as that one where no account is named.
func (c *cluster) remote(account Account, user *credentials, line *line) (*Client, error) {
	itself := account
	itself.Remote = account.IsOwn()
	client, err := c.client(itself, user)
	if err != nil {
		return nil, err
	}
	client.line, client.call = line, c.call
	if account.IsOwn() {
		return client, nil
	}
	impersonating, err := c.client(account, &impersonation{user: account.Username(), next: user})
	if err != nil {
		return nil, err
	}
	impersonating.line, impersonating.call, impersonating.impersonator = line, c.call, client
	return impersonating, nil
}

// authenticated is the way to another cluster, with a token of the destination if there is one. As in Local, that one can be
// had shows here and not in the midst of the work.
func (c *Clients) authenticated(ctx context.Context, to Destination, way http.RoundTripper) (http.RoundTripper, error) {
	if to.token == (grant{}) {
		return way, nil
	}
	if _, err := c.tokenAbroad(ctx, to.token); err != nil {
		return nil, Explain(err, fmt.Sprintf("wait for a token of service account %s", to.token.account), Reasons{})
	}
	return &bearer{grant: to.token, tokens: c.abroad, next: way}, nil
}

// credentials are those of the user that another cluster's kubeConfig leads to.
type credentials struct {
	access kubeconfig.Access
	next   http.RoundTripper
}

var _ http.RoundTripper = (*credentials)(nil)

// RoundTrip sends the request as the user. Where nothing in the access says who asks, a token does that goes with it further
// on.
func (c *credentials) RoundTrip(request *http.Request) (*http.Response, error) {
	authenticated := request.Clone(request.Context())
	switch {
	case c.access.Token != "":
		authenticated.Header.Set("Authorization", "Bearer "+c.access.Token)
	case c.access.Username != "":
		authenticated.SetBasicAuth(c.access.Username, c.access.Password)
	}
	return c.next.RoundTrip(authenticated)
}

// impersonation has the user that sends a request ask to be taken for another one.
type impersonation struct {
	user string
	next http.RoundTripper
}

var _ http.RoundTripper = (*impersonation)(nil)

// RoundTrip names the user. The API server adds the groups of a service account by itself, as long as none are asked for.
func (i *impersonation) RoundTrip(request *http.Request) (*http.Response, error) {
	impersonating := request.Clone(request.Context())
	impersonating.Header.Set(authenticationv1.ImpersonateUserHeader, i.user)
	return i.next.RoundTrip(impersonating)
}

// clean is clean for what the client's cluster answers. Of another cluster it says which, and what the user there lacks.
func (c *Client) clean(ctx context.Context, err error) error {
	err = clean(err)
	var own *failure.Error // such as that there is no token any more, which is about the cluster here
	if c.server == "" || errors.As(err, &own) {
		return err
	}
	var none *unanswered
	if errors.As(err, &none) {
		return &unanswered{text: c.server + ": " + none.text, err: none.err}
	}
	if apierrors.IsUnauthorized(err) {
		return failure.NewTransient(v1.ReasonTargetUnreachable, "%s does not accept the credentials that kubeConfig leads to: %w",
			c.server, err)
	}
	if apierrors.IsForbidden(err) && c.impersonator != nil && c.mayNotImpersonate(ctx) {
		// The answer is not in the chain: it says nothing about what was asked for.
		return failure.NewStalled(v1.ReasonAccessDenied,
			"the user that kubeConfig leads to may not impersonate %s at %s: grant it "+
				"impersonate on serviceaccounts named %s in namespace %s there: %v",
			c.account.Identity(), c.server, c.account.Name, c.account.Namespace, err)
	}
	return err
}

// mayNotImpersonate is true when it is not the account that lacks a permission, but the user that asks to be taken for it.
// An API server says both in the same way, so it is asked again, by the user itself. Where impersonation can be constrained,
// the user has another permission for that, and what it then may not do is no longer about impersonation alone.
func (c *Client) mayNotImpersonate(ctx context.Context) bool {
	account := Permission{
		Verb: "impersonate", Resource: "serviceaccounts", Namespace: c.account.Namespace, Name: c.account.Name,
	}
	constrained := account
	constrained.Verb, constrained.Group = "impersonate:serviceaccount", authenticationv1.GroupName
	for _, needed := range []Permission{account, constrained} {
		if allowed, err := (asker{c.impersonator}).Allowed(ctx, needed); err != nil || allowed {
			return false
		}
	}
	return true
}

// proxyError is a proxy that does not let us through.
type proxyError struct{ code int }

func (e *proxyError) Error() string {
	return fmt.Sprintf("the proxy of the kubeconfig answered %d %s instead of connecting", e.code, http.StatusText(e.code))
}

// acceptProxy is http.Transport.OnProxyConnectResponse. The proxy's own words are not shown to anybody.
func acceptProxy(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode != http.StatusOK {
		return &proxyError{code: answer.StatusCode}
	}
	return nil
}

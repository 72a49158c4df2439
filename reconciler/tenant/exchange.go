package tenant

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/cloud"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/kubeconfig"
)

// exchangeTimeout bounds all requests of an exchange together: who waits for it has a worker.
const exchangeTimeout = 20 * time.Second

// exchange is where the token of an account is exchanged, and for what.
type exchange struct {
	provider, cluster string
	// address and ca take the place of what the provider says.
	address, ca string
	// reader reads what the account is called there.
	reader Account
}

// mintAbroad makes tokens that other clusters take: those that mint makes, or what a cloud exchanges them for.
func (c *Clients) mintAbroad(mint mintFunc) mintFunc {
	return func(ctx context.Context, of grant, now time.Time) (*token, error) {
		if of.cloud == (exchange{}) {
			return mint(ctx, of, now)
		}
		ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
		defer cancel()
		var audiences []string
		if of.audiences != "" {
			audiences = strings.Split(of.audiences, "\n")
		}
		access, err := cloud.Exchange(ctx, cloud.Cluster{
			Provider: of.cloud.provider, Resource: of.cloud.cluster, Address: of.cloud.address, CA: of.cloud.ca,
			Audiences: audiences,
		}, of.account.Namespace, of.account.Name, &exchanged{clients: c, mint: mint, of: of, now: now})
		if err != nil {
			return nil, err
		}
		made := newToken(access.Token, access.Life, now)
		made.ca = access.CA
		if made.server, err = kubeconfig.Server("https://" + strings.TrimPrefix(access.Server, "https://")); err != nil {
			return nil, failure.NewStalled(v1.ReasonKubeConfigInvalid, "the address that %s has of the cluster %w",
				of.cloud.provider, err)
		}
		return made, nil
	}
}

// tokenAbroad is a token that another cluster takes. A pass in a hurry does not wait for a cloud that is slow.
func (c *Clients) tokenAbroad(ctx context.Context, of grant) (*token, error) {
	if of.cloud == (exchange{}) {
		return c.abroad.get(ctx, of) // of the API server here
	}
	pass := passOf(ctx)
	hurried, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found, err := c.abroad.get(hurried, of)
	if hurried.Err() == nil || ctx.Err() != nil {
		return found, err
	}
	if pass.met() {
		return nil, failure.NewWaiting(v1.ReasonProgressing, time.Second, "%s is slow", of.cloud.provider)
	}
	return c.abroad.get(ctx, of)
}

// exchanged is the account whose token a cloud exchanges.
type exchanged struct {
	clients *Clients
	mint    mintFunc
	of      grant
	now     time.Time
}

var _ cloud.Account = (*exchanged)(nil)

// Annotations implements cloud.Account. They are read as the account that reads everything else.
func (e *exchanged) Annotations(ctx context.Context) (map[string]string, error) {
	reader, err := e.clients.Local(ctx, e.of.cloud.reader)
	if err != nil {
		return nil, err
	}
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}
	object, err := reader.Get(ctx, gvk, e.of.account.Namespace, e.of.account.Name)
	if apierrors.IsForbidden(err) {
		return nil, failure.NewStalled(v1.ReasonAccessDenied, "%s may not get ServiceAccount %s, whose annotations say what it "+
			"is called by %s: grant it get on serviceaccounts named %s in namespace %s", reader.Identity(), e.of.account,
			e.of.cloud.provider, e.of.account.Name, e.of.account.Namespace)
	}
	if err != nil {
		return nil, Explain(err, fmt.Sprintf("get ServiceAccount %s as %s", e.of.account, reader.Identity()),
			Reasons{NotFound: v1.ReasonServiceAccountNotFound})
	}
	return object.GetAnnotations(), nil
}

// Token implements cloud.Account. Whatever the provider wants for an audience, it is not the API server here.
func (e *exchanged) Token(ctx context.Context, audiences []string) (string, error) {
	if err := e.clients.checkAudiences(ctx, e.of.cloud.reader, audiences); err != nil {
		return "", err
	}
	made, err := e.mint(ctx, grant{account: e.of.account, audiences: strings.Join(audiences, "\n")}, e.now)
	if err != nil {
		return "", err
	}
	return made.value, nil
}

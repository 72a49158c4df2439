// Package cloud exchanges the token of a ServiceAccount for what a cloud provider lets into a cluster of its. It asks the
// provider's own servers, at addresses that no tenant can name, through the proxy of the environment if there is one.
//
// It never uses an identity of the reconciler, neither from the environment nor from a metadata service: without a
// ServiceAccount nothing is exchanged. It caches nothing and connects to no cluster.
package cloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/fluxcd/pkg/auth"
	"github.com/fluxcd/pkg/auth/aws"
	"github.com/fluxcd/pkg/auth/azure"
	"github.com/fluxcd/pkg/auth/gcp"
	"google.golang.org/api/googleapi"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

func init() {
	// The library asks for this before it requests a token for anybody but its own program.
	auth.EnableObjectLevelWorkloadIdentity()
}

// providers are those whose exchange is tested from end to end.
var providers = map[string]auth.RESTConfigProvider{
	aws.ProviderName: aws.Provider{}, azure.ProviderName: azure.Provider{}, gcp.ProviderName: gcp.Provider{},
}

// Providers are the names of the providers, in alphabetical order.
func Providers() []string { return slices.Sorted(maps.Keys(providers)) }

// Cluster is a cluster as a provider knows it.
type Cluster struct {
	// Provider is one of Providers.
	Provider string
	// Resource is the provider's name of the cluster.
	Resource string
	// Address and CA take the place of what the provider says; empty is what it says.
	Address, CA string
	// Audiences are whom the account's token is for; none are those that the provider expects.
	Audiences []string
}

// Account is a ServiceAccount whose token is exchanged.
type Account interface {
	// Annotations are those of the ServiceAccount, which name the identity at the provider.
	Annotations(ctx context.Context) (map[string]string, error)
	// Token is a token of the account for the audiences: one at least.
	Token(ctx context.Context, audiences []string) (string, error)
}

// Access is what a cluster is reached with.
type Access struct {
	// Server is the address of the API server, CA the certificates it is verified by, in PEM, and Token what it takes.
	Server, CA, Token string
	// Life is for how long the token is good.
	Life time.Duration
}

// Exchange gets what a cluster is reached with as the account. Every error is a *failure.Error: those of the account;
// AccessDenied (Stalled) if the provider says no; TargetUnreachable (Transient) if it does not answer.
func Exchange(ctx context.Context, cluster Cluster, namespace, name string, account Account) (_ Access, err error) {
	provider, known := providers[cluster.Provider]
	if !known || name == "" || namespace == "" {
		return Access{}, failure.NewStalled(v1.ReasonInvalidSpec, "nobody's token can be exchanged at %q", cluster.Provider)
	}
	// The library takes for granted what providers leave out of clusters that are still being made, and it runs where nobody
	// else would catch it.
	defer func() {
		if fault := recover(); fault != nil {
			err = failure.NewTransient(v1.ReasonTargetUnreachable, "%s: what it says of the cluster is incomplete", cluster.Provider)
		}
	}()
	config, err := auth.GetRESTConfig(ctx, provider,
		auth.WithClient(accountClient{account: account}), auth.WithServiceAccountNamespace(namespace),
		auth.WithServiceAccountName(name), auth.WithAudiences(cluster.Audiences...),
		auth.WithClusterResource(cluster.Resource), auth.WithClusterAddress(cluster.Address), auth.WithCAData(cluster.CA))
	if err != nil {
		return Access{}, explain(err, cluster.Provider)
	}
	return Access{
		Server: config.Host, CA: string(config.CAData), Token: config.BearerToken, Life: config.GetDuration(),
	}, nil
}

// explain keeps what somebody can do something about. The whole text of an error has numbers of requests in it, which
// never are the same, and what the other side sent.
func explain(err error, provider string) error {
	var own *failure.Error
	var coded interface { // of AWS
		ErrorCode() string
		ErrorMessage() string
	}
	var entra *azidentity.AuthenticationFailedError
	var arm *azcore.ResponseError
	var google *googleapi.Error
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &coded):
		return failure.NewStalled(v1.ReasonAccessDenied, "%s: %s: %s", provider, coded.ErrorCode(), coded.ErrorMessage())
	case errors.As(err, &entra) && entra.RawResponse != nil:
		return answered(entra.RawResponse.StatusCode, provider+": the identity that the ServiceAccount is annotated with")
	case errors.As(err, &arm):
		return answered(arm.StatusCode, provider+": the cluster: "+arm.ErrorCode)
	case errors.As(err, &google):
		return answered(google.Code, provider+": the cluster")
	case errors.As(err, &timeout), errors.Is(err, context.DeadlineExceeded):
		return failure.NewTransient(v1.ReasonTargetUnreachable, "%s: its servers do not answer", provider)
	default:
		return failure.NewStalled(v1.ReasonAccessDenied, "%s: %s", provider, failure.Shorten(err.Error(), longest))
	}
}

// answered is an answer other than a good one.
func answered(code int, what string) error {
	text := fmt.Sprintf("%s: %d %s", what, code, http.StatusText(code))
	if code >= http.StatusInternalServerError || code == http.StatusTooManyRequests {
		return failure.NewTransient(v1.ReasonTargetUnreachable, "%s", text)
	}
	return failure.NewStalled(v1.ReasonAccessDenied, "%s", text)
}

// longest is how many bytes of an error of the library itself are kept.
const longest = 512

package tenant

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// newMinter requests tokens with the reconciler's own identity. It needs create on serviceaccounts/token and nothing else.
func newMinter(own *rest.Config) (mintFunc, error) {
	config := rest.CopyConfig(own)
	config.QPS, config.RateLimiter = -1, nil
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("tenant: connect to %s: %w", config.Host, err)
	}
	return func(ctx context.Context, of grant, now time.Time) (*token, error) {
		account := of.account
		request := &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(lifetime.Seconds()))},
		}
		if of.audiences != "" {
			request.Spec.Audiences = strings.Split(of.audiences, "\n")
		}
		answer, err := core.ServiceAccounts(account.Namespace).
			CreateToken(unlogged(ctx), account.Name, request, metav1.CreateOptions{})
		if err != nil {
			return nil, explainMint(clean(err), account)
		}
		return readToken(answer, account, now)
	}, nil
}

// unlogged keeps client-go from writing the bodies of requests and answers to the log, which it does at level 8: they hold
// tokens and Secrets.
func unlogged(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

// claims are what is read of a token (RFC 7519, and the private claim of Kubernetes).
type claims struct {
	Issuer     string    `json:"iss"`
	Audiences  audiences `json:"aud"`
	IssuedAt   float64   `json:"iat"`
	Kubernetes struct {
		Namespace      string `json:"namespace"`
		ServiceAccount struct {
			Name string    `json:"name"`
			UID  types.UID `json:"uid"`
		} `json:"serviceaccount"`
	} `json:"kubernetes.io"`
}

// audiences are one text, or several in a list.
type audiences []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audiences) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = audiences{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(a))
}

// readToken takes the account's UID, the audiences and the token's life from the answer.
func readToken(answer *authenticationv1.TokenRequest, account Account, now time.Time) (*token, error) {
	read, err := parseClaims(answer.Status.Token)
	if err != nil || read.Kubernetes.Namespace != account.Namespace || read.Kubernetes.ServiceAccount.Name != account.Name {
		return nil, failure.NewTransient(v1.ReasonTargetUnreachable,
			"the API server was asked for a token of service account %s and answered with something else", account)
	}
	issued := time.Unix(int64(read.IssuedAt), 0)
	life := answer.Status.ExpirationTimestamp.Sub(issued)
	made := newToken(answer.Status.Token, life, now)
	made.uid, made.audiences = read.Kubernetes.ServiceAccount.UID, append(read.Audiences, read.Issuer)
	return made, nil
}

// parseClaims reads a JWT's payload and does not verify the signature. That is enough: the token comes straight from the
// API server that will judge it, and what is read tells accounts of one name apart and grants nothing.
func parseClaims(jwt string) (claims, error) {
	var read claims
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 {
		return read, errors.New("not a signed JWT")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return read, err
	}
	return read, json.Unmarshal(payload, &read)
}

// explainMint tells apart what the owner of the StageSet, and what the operator of the reconciler has to mend.
func explainMint(err error, account Account) error {
	switch {
	case missesObject(err):
		return failure.NewStalled(v1.ReasonServiceAccountNotFound,
			"service account %s does not exist: create it, or correct serviceAccountName", account)
	case apierrors.IsForbidden(err):
		return failure.NewStalled(v1.ReasonPermissionsMissing,
			"the reconciler itself may not create serviceaccounts/token in namespace %s, so nothing can be done as service "+
				"account %s: %w", account.Namespace, account, err)
	case apierrors.IsInvalid(err):
		// The answer of an admission policy, such as the chart's, which says itself what to do about it. It is never Forbidden:
		// that would look like RBAC.
		return failure.NewStalled(v1.ReasonPermissionsMissing,
			"the API server does not give the reconciler a token of service account %s: %w", account, err)
	default:
		return Explain(err, fmt.Sprintf("request a token of service account %s", account), Reasons{})
	}
}

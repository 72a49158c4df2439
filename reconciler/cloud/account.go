package cloud

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// accountClient is the client that the library asks: it knows one ServiceAccount, whatever it is asked for, and its tokens.
type accountClient struct {
	client.Client // nothing else is asked of it

	account Account
}

// Get implements client.Reader, for ServiceAccounts.
func (c accountClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	account, ok := into.(*corev1.ServiceAccount)
	if !ok {
		return fmt.Errorf("asked for a %T, where only the ServiceAccount is known", into)
	}
	annotations, err := c.account.Annotations(ctx)
	if err != nil {
		return err
	}
	account.Namespace, account.Name, account.Annotations = key.Namespace, key.Name, annotations
	return nil
}

// SubResource implements client.SubResourceClientConstructor, for tokens.
func (c accountClient) SubResource(string) client.SubResourceClient {
	return tokenClient{account: c.account}
}

// tokenClient requests tokens.
type tokenClient struct {
	client.SubResourceClient // nothing else is asked of it

	account Account
}

// Create implements client.SubResourceWriter.
func (c tokenClient) Create(
	ctx context.Context, _, request client.Object, _ ...client.SubResourceCreateOption,
) error {
	asked, ok := request.(*authenticationv1.TokenRequest)
	if !ok || len(asked.Spec.Audiences) == 0 {
		return fmt.Errorf("asked for a %T without an audience, where only tokens for a provider are made", request)
	}
	token, err := c.account.Token(ctx, asked.Spec.Audiences)
	asked.Status.Token = token
	return err
}

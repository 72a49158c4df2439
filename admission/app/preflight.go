package app

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/admission/certs"
	"github.com/stageset/stageset/process"
)

// preflight finds out at once what would otherwise show as a program that never becomes ready: missing permissions, and a
// missing Secret for the certificate.
func preflight(ctx context.Context, config *rest.Config, options *Options) error {
	if err := process.CheckPermissions(ctx, config, permissions(options)); err != nil {
		return err
	}
	if settings := certsOptions(options, ""); settings.Provider == certs.ProviderSecret {
		return checkSecret(ctx, config, settings)
	}
	return nil
}

func checkSecret(ctx context.Context, config *rest.Config, settings certs.Options) error {
	direct, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	var secret corev1.Secret
	if err := direct.Get(ctx, settings.Secret, &secret); apierrors.IsNotFound(err) {
		return fmt.Errorf("the Secret for the certificate does not exist; make it, empty: %s", settings.Restore())
	} else if err != nil {
		return fmt.Errorf("reading Secret %s: %w", settings.Secret, err)
	}
	return nil
}

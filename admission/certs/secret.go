package certs

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The kinds of problems of a Secret.
const (
	problemMissing   = "secret-missing"
	problemUnusable  = "secret-unusable"
	problemImmutable = "secret-immutable"
)

// secretProvider offers what the Secret holds.
type secretProvider struct {
	options Options
	reader  client.Reader
}

func (p *secretProvider) offered(ctx context.Context) (material, error) {
	var secret corev1.Secret
	if err := p.reader.Get(ctx, p.options.Secret, &secret); apierrors.IsNotFound(err) {
		return material{}, &problem{
			kind: problemMissing, remedy: p.options.Restore(),
			err: fmt.Errorf("the Secret of the certificate is gone: %w", err),
		}
	} else if err != nil {
		return material{}, fmt.Errorf("reading Secret %s: %w", p.options.Secret, err)
	}
	found, err := parseMaterial(secret.Data)
	if errors.Is(err, errNotIssued) {
		err = nil // the rotator is about to issue one
	} else if err != nil {
		err = &problem{
			kind: problemUnusable, remedy: "nothing, if this is not logged again: it is about to be replaced",
			err: fmt.Errorf("the Secret %s holds no usable certificate: %w", p.options.Secret, err),
		}
	}
	if err == nil && secret.Immutable != nil && *secret.Immutable {
		err = &problem{
			kind: problemImmutable, remedy: "delete the Secret, and then: " + p.options.Restore(),
			err: fmt.Errorf("the Secret %s is immutable", p.options.Secret),
		}
	}
	return found, err
}

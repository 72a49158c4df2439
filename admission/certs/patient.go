package certs

import (
	"context"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// secretPause is when a rotator that found no Secret at its start looks for it again.
const secretPause = 2 * time.Second

// patientManager is a manager under which a rotator survives that its Secret is deleted while it starts: by itself it ends
// the process then, although what is served could be served on.
type patientManager struct {
	manager.Manager
}

// Add adds the rotator with patience, and everything else as it is.
func (m patientManager) Add(runnable manager.Runnable) error {
	if started, ok := runnable.(*rotator.CertRotator); ok {
		runnable = patientRotator{started}
	}
	return m.Manager.Add(runnable)
}

// patientRotator starts a rotator, again if there is no Secret. Nothing of the rotator runs yet when it fails so.
type patientRotator struct {
	*rotator.CertRotator
}

// Start runs the rotator until ctx is done. Its error is the rotator's.
func (p patientRotator) Start(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, secretPause, true, func(ctx context.Context) (ended bool, err error) {
		err = p.CertRotator.Start(ctx)
		if apierrors.IsNotFound(err) {
			log.FromContext(ctx).Info("the Secret for the certificate is gone: it is looked for again", "err", err.Error())
			return false, nil
		}
		return true, err
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

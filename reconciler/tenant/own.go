package tenant

import (
	"fmt"
	"net/http"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// own is the reconciler's own identity on the way to the server, for StageSets that name no account. Nothing but transport
// hands it out, and nothing but Clients.local asks for it: another cluster never sees it.
type own struct {
	allowed   func(namespace string) bool
	transmits http.RoundTripper
}

func newOwn(opts Options) (*own, error) {
	if opts.Own == nil {
		return &own{allowed: func(string) bool { return false }}, nil
	}
	transport, err := rest.TransportFor(dynamic.ConfigFor(opts.Config))
	if err != nil {
		return nil, fmt.Errorf("tenant: connect to %s: %w", opts.Config.Host, err)
	}
	return &own{allowed: opts.Own, transmits: transport}, nil
}

// transport sends with the reconciler's own credentials, on behalf of a StageSet in namespace that names no account. The
// error is a *failure.Error.
func (o *own) transport(namespace string) (http.RoundTripper, error) {
	if err := o.check(namespace); err != nil {
		return nil, err
	}
	return o.transmits, nil
}

// check is nil where a StageSet may name no account, else a *failure.Error.
func (o *own) check(namespace string) error {
	if o.allowed(namespace) {
		return nil
	}
	return failure.NewStalled(v1.ReasonServiceAccountRequired,
		"no ServiceAccount in namespace %s is named, and --allow-controller-identity does not allow the reconciler's own there",
		namespace)
}

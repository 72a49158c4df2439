package main

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/process"
)

// probePatience is how long the API server may take to notice the webhooks and to trust their certificate.
const probePatience = 10 * time.Second

// startAdmission starts stageset-admission and finds out whether the API server can ask it. In a cluster that was started
// for the demo it can. In another it may be in a container, where this machine has another name: then StageSets are
// refused by the reconciler alone.
func (d *demo) startAdmission(ctx context.Context) (string, error) {
	if !d.webhook {
		return "left out, as --webhook=false says: the reconciler refuses the same", nil
	}
	if !d.admin.local() {
		d.webhook = false
		d.screen.text("Left out: the API server is at %s, and would have to reach this machine to ask. "+
			"The reconciler refuses the same, a moment later.", d.admin.config.Host)
		return "", nil
	}
	address, err := d.launchAdmission(ctx)
	if err != nil {
		return "", err
	}
	err = d.probeWebhooks(ctx)
	if err == nil {
		return "asked by the API server at https://" + address, nil
	}
	if d.kubeconfig == "" || !apierrors.IsInternalError(err) { // which it says of webhooks that it cannot call
		return "", err
	}
	d.webhook = false
	d.screen.text("Left out: the API server cannot reach this machine (%v). "+
		"The reconciler refuses the same, a moment later.", err)
	return "", d.uninstallWebhooks(ctx)
}

// launchAdmission starts the program, and returns the address of its webhooks.
func (d *demo) launchAdmission(ctx context.Context) (string, error) {
	kubeconfig, err := d.accountKubeconfig(ctx, system, "stageset-admission")
	if err != nil {
		return "", err
	}
	addresses, err := freeAddresses(2)
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(addresses[0])
	if err != nil {
		return "", err
	}
	if err := d.installWebhooks(ctx, port); err != nil {
		return "", err
	}
	return "localhost:" + port, d.start(ctx, "stageset-admission", process.Options{
		Args: []string{
			"--kubeconfig=" + kubeconfig, "--namespace=" + system, "--leader-elect=false", "--log-format=text",
			"--policy-config=" + d.file("policy-config.yaml"),
			"--webhook-host=127.0.0.1", "--webhook-port=" + port, "--cert-dns-names=localhost",
			"--metrics-bind-address=0", "--health-probe-bind-address=" + addresses[1], "--drain-delay=0s",
		},
		ReadyURL: "http://" + addresses[1] + "/readyz",
	})
}

// probeWebhooks asks the API server to store, in a dry run, what must be refused, until it is.
func (d *demo) probeWebhooks(ctx context.Context) error {
	content, err := os.ReadFile(d.tenantFile("refused", refused[0].file))
	if err != nil {
		return err
	}
	objects, err := parse(content)
	if err != nil {
		return err
	}
	return await(ctx, "the webhooks to refuse what they must", probePatience, func(ctx context.Context) error {
		object := objects[0].DeepCopy()
		object.SetNamespace("default") // which exists in every cluster
		err := d.admin.Create(ctx, object, client.DryRunAll)
		if err == nil {
			return errors.New("it was accepted")
		}
		if apierrors.IsInvalid(err) {
			return nil
		}
		return err
	})
}

// uninstallWebhooks deletes the webhook configurations: with them, nobody could write a StageSet.
func (d *demo) uninstallWebhooks(ctx context.Context) error {
	var problems []error
	for _, object := range d.admin.applied {
		if object.GroupVersionKind().Group == "admissionregistration.k8s.io" {
			problems = append(problems, d.admin.delete(ctx, object))
		}
	}
	return errors.Join(problems...)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// partControlPlane is the part that all others need.
const partControlPlane = "controlplane"

// parts are what a run consists of, each to be run as a process of its own, so that one is replaced while the others go on:
// Tilt does. What they have to know of each other is in the directory, which none of them empties.
var parts = map[string]func(*demo, context.Context) (string, error){
	partControlPlane:    (*demo).startControlPlane,
	"installation":      (*demo).installForTenant,
	"source-controller": (*demo).startSourceController,
	"git":               (*demo).makeRepository,
	"admission":         (*demo).startAdmission,
	"reconciler":        (*demo).startReconciler,
	"example":           (*demo).release,
}

// runPart runs a part until it is interrupted, or until what it started ends by itself; one that starts nothing ends when it
// is done. It returns the exit code.
func (d *demo) runPart(ctx context.Context, stdout, stderr io.Writer) int {
	ctx, d.end = context.WithCancelCause(ctx)
	defer d.end(nil)
	d.echo = stdout
	err := d.openPart()
	if err == nil {
		err = d.servePart(ctx, stdout)
	}
	err = errors.Join(err, d.stop())
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", d.part, err)
		return exitFailure
	}
	return 0
}

func (d *demo) servePart(ctx context.Context, stdout io.Writer) error {
	detail, err := parts[d.part](d, ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, strings.TrimSuffix(d.part+" is ready: "+detail, ": "))
	if len(d.programs) == 0 && d.git == nil {
		return nil
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// openPart makes the directory, which is its owner's alone, and finds the cluster in it. A part runs once: two reconcilers, of
// which none is elected, would work against each other.
func (d *demo) openPart() error {
	var err error
	if d.root, err = repository(); err != nil {
		return err
	}
	if err := makeFolders(d.dir); err != nil {
		return err
	}
	if err := os.Chmod(d.dir, 0o700); err != nil {
		return err
	}
	if d.lock, err = lock(d.file(d.part + ".lock")); err != nil {
		return err
	}
	if d.part == partControlPlane {
		return nil
	}
	if d.admin, err = newAdmin(d.file("kubeconfig")); err != nil {
		return fmt.Errorf("the part %s has to run first: %w", partControlPlane, err)
	}
	return nil
}

// installForTenant makes what an administrator would, for the product and for the tenant of the example.
func (d *demo) installForTenant(ctx context.Context) (string, error) {
	detail, err := d.install(ctx)
	if err != nil {
		return "", err
	}
	_, err = d.makeTenant(ctx)
	return detail, err
}

// noteAddress keeps where a part can be asked whether it is ready, if it has such an address.
func (d *demo) noteAddress(url string) error {
	if d.part == "" || url == "" {
		return nil
	}
	_, err := d.write(addressFile(d.part), []byte(url))
	return err
}

func addressFile(part string) string { return part + ".url" }

// ready asks a part whether it is ready. It returns the exit code.
func (d *demo) ready(ctx context.Context, stderr io.Writer) int {
	if err := d.askPart(ctx); err != nil {
		fmt.Fprintf(stderr, "%s is not ready: %v\n", d.readyPart, err)
		return exitFailure
	}
	return 0
}

func (d *demo) askPart(ctx context.Context) error {
	if d.readyPart == partControlPlane {
		admin, err := newAdmin(d.file("kubeconfig"))
		if err != nil {
			return err
		}
		_, err = admin.describe()
		return err
	}
	url, err := os.ReadFile(d.file(addressFile(d.readyPart)))
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, string(url), nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{}}).Do(request) // past any proxy
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

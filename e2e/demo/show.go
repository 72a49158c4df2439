package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
)

// releasePatience is how long the release may take on a busy machine.
const releasePatience = 3 * time.Minute

// release applies the StageSet as the tenant, and tells what happens until it is Ready.
func (d *demo) release(ctx context.Context) (string, error) {
	d.screen.blank()
	late := fmt.Errorf("the StageSet is not Ready after %s", releasePatience)
	ctx, cancel := context.WithTimeoutCause(ctx, releasePatience, late)
	defer cancel()
	events := d.watch(ctx)
	_, ok, err := d.kubectl(ctx, "apply", "-f", d.short(d.tenantFile("webshop.yaml")))
	if err != nil {
		return "", err
	}
	if !ok {
		return "", errors.New("kubectl apply failed")
	}
	d.screen.blank()
	began := d.screen.clock.Now()
	d.told = history{}
	for {
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case e := <-events:
			for _, change := range d.told.add(e.set) {
				d.screen.event("+"+elapsed(d.screen.clock.Since(began)), change)
			}
			switch {
			case isTrue(e.set, v1.ConditionStalled):
				return "", errors.New("the StageSet is Stalled: nothing will change without somebody's change")
			case isTrue(e.set, v1.ConditionReady):
				return "", d.prove(ctx)
			}
		}
	}
}

// prove looks at the cluster rather than at the status: the second stage began when the first was healthy, everything is
// available, and the tenant's account has written it.
func (d *demo) prove(ctx context.Context) error {
	var database, shop appsv1.Deployment
	for name, deployment := range map[string]*appsv1.Deployment{"database": &database, "shop": &shop} {
		if err := d.admin.Get(ctx, client.ObjectKey{Namespace: team, Name: name}, deployment); err != nil {
			return err
		}
	}
	databaseAt, err := availableSince(&database)
	if err != nil {
		return err
	}
	if shop.CreationTimestamp.Before(&databaseAt) {
		return fmt.Errorf("the Deployment shop was made at %s, before the Deployment database was available at %s",
			shop.CreationTimestamp, databaseAt)
	}
	if _, err := availableSince(&shop); err != nil {
		return err
	}
	if d.kubeconfig != "" {
		return nil // whose audit log is elsewhere
	}
	writers, err := readWriters(d.file("audit.log"))
	if err != nil {
		return err
	}
	if want := "system:serviceaccount:" + team + ":deployer"; len(writers) != 1 || writers[0] != want {
		return fmt.Errorf("the objects were written by %s, not by %s alone", strings.Join(writers, ", "), want)
	}
	d.screen.blank()
	d.screen.text("Everything was written as %s, says the API server's audit log.", writers[0])
	return nil
}

func availableSince(deployment *appsv1.Deployment) (metav1.Time, error) {
	for _, condition := range deployment.Status.Conditions {
		if condition.Type == appsv1.DeploymentAvailable && condition.Status == corev1.ConditionTrue {
			return condition.LastTransitionTime, nil
		}
	}
	return metav1.Time{}, fmt.Errorf("the Deployment %s is not available, though the StageSet is Ready", deployment.Name)
}

// refusal is a StageSet that must not be accepted.
type refusal struct {
	file, title string
	rule        string // that refuses it
}

var refused = []refusal{
	{"no-account.yaml", "A StageSet that names no account to act as:", "service-account-required"},
	{"two-kubeconfigs.yaml", "One that names two other clusters at once:", "kubeconfig-one-reference"},
	{"foreign-source.yaml", "One with another team's source, which POLICY forbids:", "no-cross-namespace-refs"},
}

// refusals applies what must be refused, as the tenant.
func (d *demo) refusals(ctx context.Context) (string, error) {
	for _, refusal := range refused {
		d.screen.blank()
		d.screen.text("%s", strings.ReplaceAll(refusal.title, "POLICY", d.short(d.file("policy-config.yaml"))))
		answer, err := d.refusal(ctx, refusal)
		if err != nil {
			return "", err
		}
		if !strings.Contains(answer, refusal.rule) {
			return "", fmt.Errorf("the answer does not name the rule %s", refusal.rule)
		}
	}
	return "", nil
}

// refusal applies one and returns the answer: of the webhook, or else of the reconciler.
func (d *demo) refusal(ctx context.Context, refusal refusal) (string, error) {
	path := d.short(d.tenantFile("refused", refusal.file))
	answer, accepted, err := d.kubectl(ctx, "apply", "-f", path)
	if err != nil {
		return "", err
	}
	if d.webhook && accepted {
		return "", errors.New("it was accepted")
	}
	if d.webhook {
		return answer, nil
	}
	if !accepted {
		return "", errors.New("it was not stored, although no webhook is installed")
	}
	if _, ok, err := d.kubectl(ctx, "wait", "-f", path, "--for=condition=Ready=False", "--timeout=1m"); err != nil || !ok {
		return "", errors.Join(err, errors.New("the reconciler does not refuse it"))
	}
	answer, _, err = d.kubectl(ctx, "get", "-f", path, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].message}`)
	if err != nil {
		return "", err
	}
	_, _, err = d.kubectl(ctx, "delete", "-f", path)
	return answer, err
}

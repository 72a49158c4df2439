package chart_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stageset/stageset/api/crds"
	"github.com/stageset/stageset/e2e/cluster"
)

// With rbac.clusterAdmin a StageSet that names no account is applied as the reconciler, one that names an account still as
// that account, and no built-in role may write one.
func TestSingleTenant(t *testing.T) {
	cluster.Shared(t).InstallCRDs(t, crds.FS)
	r := prepare(t, "single", "rbac: {clusterAdmin: true}")
	r.install(t, "--take-ownership") // of CRDs that are there already
	r.route(t)
	r.start(t, "admission")
	r.start(t, "reconciler")
	n := r.tenant(t)
	mark := r.Audit(t)

	nobody := n.stageSet("nobody")
	unstructured.RemoveNestedField(nobody.Object, "spec", "serviceAccountName")
	revision := n.commit(t, "nobody", "1")
	n.create(t, nobody)
	n.ready(t, nobody, revision)
	own := cluster.ByAccount(r.namespace, r.name+"-reconciler")
	written := mark.Since(t, own, cluster.InNamespace(n.namespace), cluster.Writes)
	if !slices.ContainsFunc(written, func(event cluster.AuditEvent) bool { return event.Resource == "configmaps" }) {
		t.Errorf("the reconciler has not written the ConfigMap itself: %v", written)
	}

	n.Apply(t, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: powerless, namespace: "+n.namespace+"}}")
	named := n.stageSet("named")
	if err := unstructured.SetNestedField(named.Object, "powerless", "spec", "serviceAccountName"); err != nil {
		t.Fatal(err)
	}
	n.commit(t, "named", "1")
	n.create(t, named)
	n.WaitFor(t, named, cluster.Condition("Ready", "False", "AccessDenied"))

	cluster.Eventually(t, func(ctx context.Context) error { // once nothing of an earlier release is in the role edit any more
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + n.namespace + ":" + deployer,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: n.namespace, Verb: "create", Group: "stages.metio.wtf", Resource: "stagesets",
			},
		}}
		if err := r.client.Create(ctx, review); err != nil {
			return err
		}
		if review.Status.Allowed {
			return errors.New("who may edit a namespace may write StageSets in it, and so is cluster-admin")
		}
		return nil
	})
}

// Package charts_test shows on a real API server what the roles of the chart allow, and what its admission policies fence.
package charts_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/api/crds"
	"github.com/stageset/stageset/e2e/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

const (
	releases = "stages.metio.wtf"
	sources  = "source.toolkit.fluxcd.io"
)

// Everything that somebody could do to what a tenant's release is made of.
var (
	verbs     = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	resources = []authorizationv1.ResourceAttributes{
		{Group: releases, Resource: "stagesets"},
		{Group: releases, Resource: "stagesets", Subresource: "status"},
		{Group: releases, Resource: "stagesets", Subresource: "finalizers"},
		{Group: releases, Resource: "stageinventories"},
		{Group: releases, Resource: "stageinventories", Subresource: "status"},
		{Group: releases, Resource: "stageinventories", Subresource: "finalizers"},
		{Group: sources, Resource: "buckets"},
		{Group: sources, Resource: "externalartifacts"},
		{Group: sources, Resource: "gitrepositories"},
		{Group: sources, Resource: "ocirepositories"},
	}
)

// The built-in roles know nothing of StageSets or of Flux: all that they allow here is what the aggregated roles add. Nobody
// may write a status, a finalizer through its subresource, or an inventory, which is what the reconciler deletes by.
func TestTenantRoles(t *testing.T) {
	c := cluster.Shared(t)
	c.InstallCRDs(t, crds.FS)
	applyForTest(t, c, "aggregate-view.yaml", "stageset-view")
	applyForTest(t, c, "aggregate-edit.yaml", "stageset-edit")

	view := []string{
		"stagesets: get list watch",
		"stageinventories: get list watch",
		"buckets: get",
		"externalartifacts: get list",
		"gitrepositories: get",
		"ocirepositories: get",
	}
	edit := append([]string{"stagesets: get list watch create update patch delete deletecollection"}, view[1:]...)
	for role, want := range map[string][]string{"view": view, "edit": edit, "admin": edit} {
		t.Run(role, func(t *testing.T) {
			user := bind(t, c, role)
			cluster.Eventually(t, func(ctx context.Context) error { // until the role has been aggregated
				got, err := allowed(ctx, c.Client(t), user)
				if err != nil {
					return err
				}
				if diff := cmp.Diff(want, got); diff != "" {
					return fmt.Errorf("what %s allows (-want +got):\n%s", role, diff)
				}
				return nil
			})
		})
	}
}

// applyForTest applies a file of the chart, and removes the role in it after the test.
func applyForTest(t *testing.T, c *cluster.Cluster, file, role string) {
	t.Helper()
	content, err := os.ReadFile("stageset/files/" + file)
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(t, string(content))
	object := cluster.Ref("rbac.authorization.k8s.io/v1", "ClusterRole", "", role)
	t.Cleanup(func() {
		if err := c.Client(t).Delete(context.Background(), object); err != nil {
			t.Errorf("deleting ClusterRole %s: %v", role, err)
		}
	})
}

// user is whom to ask for: the API server is told the namespace and the name.
type user struct{ namespace, name string }

// bind binds a built-in role to a new user in a namespace of its own.
func bind(t *testing.T, c *cluster.Cluster, role string) user {
	t.Helper()
	u := user{namespace: c.Namespace(t, "team"), name: "jane"}
	c.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: jane, namespace: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %s}]
`, u.namespace, role, u.name))
	return u
}

// allowed has a line for each resource that the user may do something to in its namespace.
func allowed(ctx context.Context, c client.Client, u user) ([]string, error) {
	var lines []string
	for _, attributes := range resources {
		attributes.Namespace = u.namespace
		var can []string
		for _, verb := range verbs {
			attributes.Verb = verb
			review := &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: u.name, ResourceAttributes: &attributes},
			}
			if err := c.Create(ctx, review); err != nil {
				return nil, err
			}
			if review.Status.Allowed {
				can = append(can, verb)
			}
		}
		if can != nil {
			name := strings.TrimSuffix(attributes.Resource+"/"+attributes.Subresource, "/")
			lines = append(lines, name+": "+strings.Join(can, " "))
		}
	}
	return lines, nil
}

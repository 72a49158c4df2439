package app_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/stagesetctl/app"
)

func TestGrantSource(t *testing.T) {
	out, stderr, code := run(t, "", "grant", "source", "gitrepository/platform/charts",
		"--to", "team-b/deployer", "--to=team-a/deployer")
	if stderr != "" || code != app.ExitOK {
		t.Fatalf("%s (exit code %d)", stderr, code)
	}
	want := `---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: use-gitrepository-charts
  namespace: platform
rules:
- apiGroups:
  - source.toolkit.fluxcd.io
  resourceNames:
  - charts
  resources:
  - gitrepositories
  verbs:
  - get
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: use-gitrepository-charts
  namespace: platform
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: use-gitrepository-charts
subjects:
- kind: ServiceAccount
  name: deployer
  namespace: team-a
- kind: ServiceAccount
  name: deployer
  namespace: team-b
`
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// What is printed gives an account exactly that: get on the one source, and nothing to anybody else.
func TestGrantedSourceCanBeRead(t *testing.T) {
	c := cluster.Shared(t)
	platform, team := c.Namespace(t, "platform"), c.Namespace(t, "team")
	for kind, resource := range map[string]string{
		"GitRepository": "gitrepositories", "OCIRepository": "ocirepositories",
		"Bucket": "buckets", "ExternalArtifact": "externalartifacts",
	} {
		out, stderr, _ := run(t, "", "grant", "source", kind+"/"+platform+"/charts", "--to", team+"/deployer")
		if stderr != "" {
			t.Fatal(stderr)
		}
		c.Apply(t, strings.TrimPrefix(out, "---\n"))
		allowed := func(ctx context.Context, account, verb, name string) (bool, error) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:" + team + ":" + account,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: platform, Verb: verb, Group: "source.toolkit.fluxcd.io", Resource: resource, Name: name,
				},
			}}
			err := c.Client(t).Create(ctx, review)
			return review.Status.Allowed, err
		}
		cluster.Eventually(t, func(ctx context.Context) error { // the API server's own cache of roles
			if can, err := allowed(ctx, "deployer", "get", "charts"); err != nil || !can {
				return fmt.Errorf("the account may not read %s charts (%w)", kind, err)
			}
			return nil
		})
		for what, ask := range map[string][3]string{
			"another account": {"other", "get", "charts"}, "another source": {"deployer", "get", "other"},
			"all of them": {"deployer", "list", ""}, "to write it": {"deployer", "patch", "charts"},
		} {
			if can, err := allowed(t.Context(), ask[0], ask[1], ask[2]); err != nil || can {
				t.Errorf("%s: %s is allowed (%v)", kind, what, err)
			}
		}
	}
}

func TestGrantSourceSaysWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		want      string
	}{
		"no source":         {[]string{"--to", "a/b"}, "takes one source, as KIND/NAMESPACE/NAME"},
		"no account":        {[]string{"Bucket/a/b"}, `required flag(s) "to" not set`},
		"no namespace":      {[]string{"Bucket/a", "--to", "a/b"}, `KIND/NAMESPACE/NAME, and not "Bucket/a"`},
		"another kind":      {[]string{"Secret/a/b", "--to", "a/b"}, `GitRepository, OCIRepository, and not "Secret"`},
		"no name":           {[]string{"Bucket/a/", "--to", "a/b"}, `whose name is not ""`},
		"an odd namespace":  {[]string{"Bucket/A_b/c", "--to", "a/b"}, `whose namespace is not "A_b"`},
		"half of account":   {[]string{"Bucket/a/b", "--to", "deployer"}, `"deployer" is no account: it must be NAMESPACE/NAME`},
		"too much of it":    {[]string{"Bucket/a/b", "--to", "a/b/c"}, `"a/b/c" is no account`},
		"everybody at once": {[]string{"Bucket/a/b", "--to", "*/*"}, `"*/*" is no account`},
	} {
		t.Run(name, func(t *testing.T) {
			out, stderr, code := run(t, "", append([]string{"grant", "source"}, test.arguments...)...)
			if out != "" || code != app.ExitFailure || !strings.Contains(stderr, test.want) {
				t.Errorf("got %q, %q, exit code %d; want %q", out, stderr, code, test.want)
			}
		})
	}
}

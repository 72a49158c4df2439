package charts_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/api/crds"
	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// releaseNamespace and reconciler are where the files of the chart install, and whom they speak of.
const (
	releaseNamespace = "stageset-system"
	reconciler       = "system:serviceaccount:" + releaseNamespace + ":stageset-reconciler"
)

// T-117: what a reconciler that somebody else controls can still become.
func TestTokensAreFenced(t *testing.T) {
	c := cluster.Shared(t)
	team := c.Namespace(t, "team")
	for _, namespace := range []string{team, "kube-system", "kube-public", "kube-node-lease", "default", releaseNamespace} {
		c.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+"}}")
		account(t, c, namespace, "fenced")
	}
	powerful(t, c, reconciler)
	powerful(t, c, "somebody")
	request := func(change func(*authenticationv1.TokenRequestSpec)) authenticationv1.TokenRequestSpec {
		spec := authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)}
		change(&spec)
		return spec
	}
	plain := request(func(*authenticationv1.TokenRequestSpec) {})
	mint := func(ctx context.Context, user, namespace string, spec authenticationv1.TokenRequestSpec) error {
		return as(t, c, user).SubResource("token").Create(ctx,
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "fenced"}},
			&authenticationv1.TokenRequest{Spec: spec})
	}
	fence(t, c, "fence-tokens.yaml", "stageset-tokens", func(ctx context.Context) error {
		return mint(ctx, reconciler, "kube-system", plain)
	})

	for name, test := range map[string]struct {
		user, namespace string
		spec            authenticationv1.TokenRequestSpec
		refused         string // part of the message; empty when it gets the token
	}{
		"a tenant's account":           {reconciler, team, plain, ""},
		"a platform's account":         {reconciler, "default", plain, ""},
		"an account of the cluster":    {reconciler, "kube-system", plain, "in namespace kube-system"},
		"one that everybody may read":  {reconciler, "kube-public", plain, "in namespace kube-public"},
		"one of the nodes' leases":     {reconciler, "kube-node-lease", plain, "in namespace kube-node-lease"},
		"one of the release":           {reconciler, releaseNamespace, plain, "in namespace " + releaseNamespace},
		"somebody else, of the latter": {"somebody", "kube-system", plain, ""},
		"longer than an hour": {reconciler, team, request(func(spec *authenticationv1.TokenRequestSpec) {
			spec.ExpirationSeconds = ptr.To[int64](3601)
		}), "longer than an hour"},
		"bound to an object": {reconciler, team, request(func(spec *authenticationv1.TokenRequestSpec) {
			spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Secret", APIVersion: "v1", Name: "any"}
		}), "bound to another object"},
		"another audience": {reconciler, team, request(func(spec *authenticationv1.TokenRequestSpec) {
			spec.Audiences = []string{"https://elsewhere.invalid"}
		}), "for the audiences https://elsewhere.invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			refusedWith(t, mint(t.Context(), test.user, test.namespace, test.spec), test.refused)
		})
	}
}

// An inventory says what is deleted: a tenant that is given everything in its namespace may still not touch it.
func TestInventoriesAreFenced(t *testing.T) {
	c := cluster.Shared(t)
	c.InstallCRDs(t, crds.FS)
	team := c.Namespace(t, "team")
	for _, user := range []string{"tenant", reconciler} {
		c.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: %q, namespace: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %q}]`, strings.ReplaceAll(user, ":", "-"), team, user))
	}
	powerful(t, c, "restorer")
	inventory := func(name string) *v1.StageInventory {
		return &v1.StageInventory{
			ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name},
			Spec:       v1.StageInventorySpec{StageSet: "app", Stage: "app", Target: v1.InventoryTarget{Cluster: "local"}},
		}
	}
	fence(t, c, "fence-inventories.yaml", "stageset-inventories", func(ctx context.Context) error {
		return as(t, c, "tenant").Create(ctx, inventory("probe"), client.DryRunAll)
	})
	if err := as(t, c, reconciler).Create(t.Context(), inventory("kept")); err != nil {
		t.Fatal(err)
	}

	// The controllers of the cluster delete what is in a namespace that goes.
	gone := c.Namespace(t, "going")
	kept := inventory("goes")
	kept.Namespace = gone
	if err := as(t, c, "restorer").Create(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	if err := c.Client(t).Delete(t.Context(), cluster.Ref("v1", "Namespace", "", gone)); err != nil {
		t.Fatal(err)
	}
	c.WaitGone(t, cluster.Ref("v1", "Namespace", "", gone))

	change := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"entries":[{"version":"v1","kind":"Secret","name":"any"}]}}`))
	for name, act := range map[string]func(ctx context.Context, by client.Client) error{
		"make": func(ctx context.Context, by client.Client) error {
			return by.Create(ctx, inventory("made"), client.DryRunAll)
		},
		"change": func(ctx context.Context, by client.Client) error {
			return by.Patch(ctx, inventory("kept"), change, client.DryRunAll)
		},
		"delete": func(ctx context.Context, by client.Client) error {
			return by.Delete(ctx, inventory("kept"), client.DryRunAll)
		},
	} {
		const refused = "only stageset-reconciler writes stageinventories"
		for user, text := range map[string]string{"tenant": refused, reconciler: "", "restorer": ""} {
			t.Run(name+" by "+user, func(t *testing.T) { refusedWith(t, act(t.Context(), as(t, c, user)), text) })
		}
	}
}

// Whoever may write a Namespace gives it neither another tenancy nor another default account.
func TestNamespaceKeysAreFenced(t *testing.T) {
	c := cluster.Shared(t)
	c.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: namespace-writer}
rules: [{apiGroups: [""], resources: [namespaces], verbs: [create, get, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: namespace-writer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: namespace-writer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: writer}]`)
	powerful(t, c, "assigner")
	marked := c.Namespace(t, "marked")
	const key = "stages.metio.wtf/tenancy"
	patch := func(ctx context.Context, by client.Client, json string) error {
		return by.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: marked}},
			client.RawPatch(types.MergePatchType, []byte(json)), client.DryRunAll)
	}
	if err := as(t, c, "assigner").Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: marked}},
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+key+`":"platform"}}}`))); err != nil {
		t.Fatal(err)
	}
	fence(t, c, "fence-namespaces.yaml", "stageset-namespaces", func(ctx context.Context) error {
		return patch(ctx, as(t, c, "writer"), `{"metadata":{"labels":{"`+key+`":"other"}}}`)
	})
	const refused = "decide who is a tenant"
	for name, test := range map[string]struct{ json, refused string }{
		"another label":            {`{"metadata":{"labels":{"team":"a"}}}`, ""},
		"the same value":           {`{"metadata":{"labels":{"` + key + `":"platform"}}}`, ""},
		"another value":            {`{"metadata":{"labels":{"` + key + `":"tenant"}}}`, refused},
		"removed":                  {`{"metadata":{"labels":{"` + key + `":null}}}`, refused},
		"an annotation of ours":    {`{"metadata":{"annotations":{"stages.metio.wtf/default-service-account":"admin"}}}`, refused},
		"an annotation of another": {`{"metadata":{"annotations":{"example.com/x":"y"}}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			refusedWith(t, patch(t.Context(), as(t, c, "writer"), test.json), test.refused)
			refusedWith(t, patch(t.Context(), as(t, c, "assigner"), test.json), "")
		})
	}
	t.Run("a new Namespace", func(t *testing.T) {
		made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "made", Labels: map[string]string{key: "platform"}}}
		refusedWith(t, as(t, c, "writer").Create(t.Context(), made.DeepCopy(), client.DryRunAll), refused)
		refusedWith(t, as(t, c, "assigner").Create(t.Context(), made, client.DryRunAll), "")
	})
}

// fence applies a policy of the chart until the end of the test, and waits until it refuses what the probe tries.
func fence(t *testing.T, c *cluster.Cluster, file, name string, probe func(ctx context.Context) error) {
	t.Helper()
	content, err := os.ReadFile("stageset/files/" + file)
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(t, string(content))
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		object := cluster.Ref("admissionregistration.k8s.io/v1", kind, "", name)
		t.Cleanup(func() {
			if err := c.Client(t).Delete(context.Background(), object); err != nil {
				t.Errorf("deleting %s %s: %v", kind, name, err)
			}
		})
	}
	cluster.Eventually(t, func(ctx context.Context) error {
		if err := probe(ctx); err == nil || !strings.Contains(err.Error(), name) {
			return fmt.Errorf("policy %s does not refuse yet what it is to refuse (%v)", name, err)
		}
		return nil
	})
}

// refusedWith checks that a request was refused with that text, or, if there is none, that it was not.
func refusedWith(t *testing.T, err error, text string) {
	t.Helper()
	if text == "" && err != nil {
		t.Errorf("refused: %v", err)
	}
	if text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
		t.Errorf("got %v, want a refusal with %q", err, text)
	}
}

// as is a client of a user.
func as(t *testing.T, c *cluster.Cluster, user string) client.Client {
	t.Helper()
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	scheme := c.Client(t, v1.AddToScheme).Scheme()
	made, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// powerful gives a user every right in the cluster until the end of the test.
func powerful(t *testing.T, c *cluster.Cluster, user string) {
	t.Helper()
	name := strings.ReplaceAll(user, ":", "-") + "-is-powerful"
	c.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %q}]`, name, user))
	t.Cleanup(func() {
		binding := cluster.Ref("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", name)
		if err := c.Client(t).Delete(context.Background(), binding); err != nil {
			t.Errorf("deleting ClusterRoleBinding %s: %v", name, err)
		}
	})
}

func account(t *testing.T, c *cluster.Cluster, namespace, name string) {
	t.Helper()
	c.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: ServiceAccount, metadata: {name: %s, namespace: %s}}", name, namespace))
}

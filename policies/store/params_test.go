package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/api/crds"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/e2e/cluster"
)

// limited allows the name alone that an object of the kind Limit has.
func limited() *v1alpha1.StageSetPolicy {
	made := policy("limited", "object.metadata.name == params.spec.only", &v1alpha1.ParamRef{Name: "limit"})
	made.Spec.ParamKind = &v1alpha1.ParamKind{APIVersion: "example.com/v1", Kind: "Limit"}
	return made
}

const notServed = "limited/paramRef: cannot be evaluated: params Limit a/limit: " +
	"kind Limit of example.com/v1 is not served by this cluster"

const allowsName = "object.metadata.name in params.data.names.split(',')"

// Parameters are watched: what is made, changed or deleted takes effect, and so does that there are none.
func TestParamsAreFollowed(t *testing.T) {
	c := cluster.Shared(t)
	c.InstallCRDs(t, crds.FS)
	admin, keep := administrator(t)
	namespace := c.Namespace(t, "params")
	s := start(t, c.Config, logr.Discard())
	keep(policy("named", allowsName, &v1alpha1.ParamRef{Name: "names", Namespace: namespace}))
	lenient := &v1alpha1.ParamRef{
		Selector:                &metav1.LabelSelector{MatchLabels: map[string]string{"names": "more"}},
		ParameterNotFoundAction: v1alpha1.ParameterNotFoundAllow,
	}
	keep(policy("selected", allowsName, lenient))

	none := "named/paramRef: cannot be evaluated: params ConfigMap " + namespace + "/names: " +
		"there is none (parameterNotFoundAction Deny)"
	eventually(t, s, namespace, "a", none)
	names := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "names"}, Data: map[string]string{"names": "a,b"}}
	if err := admin.Create(t.Context(), names); err != nil {
		t.Fatal(err)
	}
	eventually(t, s, namespace, "a")
	eventually(t, s, "elsewhere", "c", "named/rule: no")
	told, before := s.Subscribe(), s.Set()
	names.Data["names"] = "b"
	if err := admin.Update(t.Context(), names); err != nil {
		t.Fatal(err)
	}
	eventually(t, s, namespace, "a", "named/rule: no")
	<-told
	if s.Set() == before {
		t.Error("with other parameters it is the same set")
	}

	more := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "more", Labels: map[string]string{"names": "more"}},
		Data:       map[string]string{"names": "c"},
	}
	if err := admin.Create(t.Context(), more); err != nil {
		t.Fatal(err)
	}
	eventually(t, s, namespace, "b", "selected/rule: no")
	eventually(t, s, "elsewhere", "b") // which has no parameters of that label
	if err := client.IgnoreNotFound(admin.Delete(t.Context(), names)); err != nil {
		t.Fatal(err)
	}
	eventually(t, s, namespace, "c", none)
}

// P-16: a kind that the cluster begins to serve is found.
func TestParamsOfAKindThatAppears(t *testing.T) {
	c := cluster.Shared(t)
	c.InstallCRDs(t, crds.FS)
	admin, keep := administrator(t)
	s := start(t, c.Config, logr.Discard())
	keep(limited())
	eventually(t, s, "a", "x", notServed)
	serve(t, admin)
	c.Apply(t, "{apiVersion: example.com/v1, kind: Limit, metadata: {name: limit}, spec: {only: x}}")
	eventually(t, s, "a", "x")
	eventually(t, s, "a", "y", "limited/rule: no")
}

// serve has the cluster serve the kind Limit until the end of the test.
func serve(t *testing.T, admin client.Client) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	preserve := true
	kind := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "limits.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "limits", Kind: "Limit"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &preserve,
				}},
			}},
		},
	}
	ref := cluster.Ref("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", kind.Name)
	cluster.Shared(t).WaitGone(t, ref) // which an earlier test has deleted
	if err := admin.Create(t.Context(), kind); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.Background(), kind) })
	cluster.Shared(t).WaitFor(t, ref, cluster.Condition("Established", "True"))
	cluster.Eventually(t, func(ctx context.Context) error { // discovery says so a moment later
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "LimitList"})
		return admin.List(ctx, list)
	})
	return kind
}

// A Secret is no parameter, whatever the account of the process may do: it is neither watched nor read.
func TestSecretsAreNeverRead(t *testing.T) {
	c := cluster.Shared(t)
	c.InstallCRDs(t, crds.FS)
	_, keep := administrator(t)
	namespace := c.Namespace(t, "secrets")
	c.Apply(t, fmt.Sprintf(`
{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: %[1]s}, stringData: {key: hunter2}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: reader, namespace: %[1]s}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: reader, namespace: %[1]s}]`, namespace))
	mark := c.Audit(t)
	s := start(t, c.TokenConfig(t, namespace, "reader"), logr.Discard())
	greedy := policy("greedy", "params.data.key == ''", &v1alpha1.ParamRef{Name: "key", Namespace: namespace})
	greedy.Spec.ParamKind.Kind = "Secret"
	keep(greedy)
	cluster.Eventually(t, func(ctx context.Context) error {
		said := denials(ctx, s, namespace, "a")
		if len(said) != 1 || !strings.Contains(said[0], "is Secret, which is never a parameter") {
			return fmt.Errorf("it says %q", said)
		}
		return nil
	})
	for _, event := range mark.Since(t, cluster.ByAccount(namespace, "reader")) {
		if event.Resource == "secrets" {
			t.Errorf("a Secret was asked for: %s", event)
		}
	}
}

// What the account may not read is no missing parameter: it is said, and failurePolicy decides. It is asked for now and
// then, and not for each evaluation (P-30).
func TestParamsThatMayNotBeRead(t *testing.T) {
	c := cluster.Shared(t)
	c.InstallCRDs(t, crds.FS)
	_, keep := administrator(t)
	namespace := c.Namespace(t, "refused")
	reader(t, namespace)
	s := start(t, c.TokenConfig(t, namespace, "reader"), logr.Discard())
	lenient := &v1alpha1.ParamRef{Name: "names", ParameterNotFoundAction: v1alpha1.ParameterNotFoundAllow}
	keep(policy("refused", allowsName, lenient))
	mark := c.Audit(t)
	want := fmt.Sprintf(`refused/paramRef: cannot be evaluated: params ConfigMap %[1]s/names: this installation may not get `+
		`ConfigMap in namespace %[1]q: policies.paramResources of the chart allows it`, namespace)
	eventually(t, s, namespace, "a", want)
	for range 1000 {
		if got := denials(t.Context(), s, namespace, "a"); len(got) != 1 || got[0] != want {
			t.Fatalf("it says %q", got)
		}
	}
	asked := 0
	for _, event := range mark.Since(t, cluster.ByAccount(namespace, "reader")) {
		if event.Resource == "configmaps" && event.Verb == "get" {
			asked++
		}
	}
	if asked == 0 || asked > 20 {
		t.Errorf("it was asked %d times for 1000 evaluations", asked)
	}
}

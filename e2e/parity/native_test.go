package parity_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
)

// everybody may write StageSets: what else a user may is up to the case.
const everybody = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: parity-stagesets}
rules: [{apiGroups: [stages.metio.wtf], resources: [stagesets], verbs: [create, update, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: parity-stagesets}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: parity-stagesets}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:authenticated'}]
`

// grant lets the user of the case do what the case says, in the namespace of the case; what is granted elsewhere is nothing
// that decides here. It waits until the API server knows.
func (c *comparison) grant(t *testing.T, shared *cluster.Cluster) {
	t.Helper()
	writer := shared.Client(t)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "case", Namespace: c.namespace.GetName()}}
	var asked []*authorizationv1.SubjectAccessReview
	for _, permission := range c.permissions {
		if permission.Namespace != "" && permission.Namespace != role.Namespace {
			continue
		}
		rule := rbacv1.PolicyRule{
			Verbs: []string{permission.Verb}, APIGroups: []string{permission.APIGroup}, Resources: []string{permission.Resource},
		}
		if permission.Name != "" {
			rule.ResourceNames = []string{permission.Name}
		}
		role.Rules = append(role.Rules, rule)
		resource, subresource, _ := strings.Cut(permission.Resource, "/")
		asked = append(asked, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: c.user.Username, Groups: c.user.Groups, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: role.Namespace, Verb: permission.Verb, Group: permission.APIGroup, Resource: resource,
				Subresource: subresource, Name: permission.Name,
			},
		}})
	}
	if len(asked) == 0 {
		return
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: c.user.Username}},
	}
	for _, object := range []client.Object{role, binding} {
		if err := writer.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	cluster.Eventually(t, func(ctx context.Context) error {
		for _, review := range asked {
			answer := review.DeepCopy()
			if err := writer.Create(ctx, answer); err != nil {
				return err
			}
			if !answer.Status.Allowed {
				return fmt.Errorf("%s may not %s yet", c.user.Username, review.Spec.ResourceAttributes)
			}
		}
		return nil
	})
}

// warnings collects the warnings of requests.
type warnings []string

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

// native is what the API server says of the case, to its user.
func (c *comparison) native(t *testing.T, shared *cluster.Cluster) decided {
	t.Helper()
	var warned warnings
	config := rest.CopyConfig(shared.Config)
	config.WarningHandler = &warned
	config.Impersonate = rest.ImpersonationConfig{UserName: c.user.Username, Groups: c.user.Groups}
	writer, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	result := decided{}
	switch object := c.object.DeepCopy(); {
	case c.object == nil:
		err = writer.Delete(t.Context(), c.old.DeepCopy(), client.DryRunAll)
	case c.old == nil:
		err = writer.Create(t.Context(), object, client.DryRunAll)
		result.Spec = object.Object["spec"]
	default:
		object.SetResourceVersion(c.old.GetResourceVersion())
		err = writer.Update(t.Context(), object, client.DryRunAll)
		result.Spec = object.Object["spec"]
	}
	result.Denied = err != nil
	prefix := fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%[1]s-warn': ", c.label)
	for _, text := range warned {
		if message, ok := strings.CutPrefix(text, prefix); ok {
			result.Messages = append(result.Messages, message)
		}
	}
	slices.Sort(result.Messages)
	if err != nil {
		denial := fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%[1]s' denied request: ", c.label)
		_, message, found := strings.Cut(err.Error(), denial)
		if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) || !found || !slices.Contains(result.Messages, message) {
			t.Errorf("refused, but not by the policy with one of the messages %q: %v", result.Messages, err)
		}
	}
	return result.withoutSpecIfDenied()
}

// sentinels are the last policies to be made: when they decide, so do all before them.
const sentinels = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: sentinel}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    objectSelector: {matchLabels: {parity.metio.wtf/case: sentinel}}
    resourceRules: [{apiGroups: [stages.metio.wtf], apiVersions: [v1], operations: [CREATE], resources: [stagesets]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'mutated': 'true'}}}"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: sentinel}
spec: {policyName: sentinel}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: sentinel}
spec:
  failurePolicy: Fail
  matchConstraints:
    objectSelector: {matchLabels: {parity.metio.wtf/case: sentinel}}
    resourceRules: [{apiGroups: [stages.metio.wtf], apiVersions: [v1], operations: [CREATE], resources: [stagesets]}]
  validations: [{expression: "!has(object.metadata.labels.mutated)", message: both are active}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: sentinel}
spec: {policyName: sentinel, validationActions: [Deny]}
`

// awaitPolicies waits until the API server evaluates all policies that have been made.
func awaitPolicies(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	c.Apply(t, sentinels)
	writer := c.Client(t)
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "stages.metio.wtf/v1", "kind": "StageSet",
		"metadata": map[string]any{
			"name": "sentinel", "namespace": "default", "labels": map[string]any{label: "sentinel"},
		},
		"spec": map[string]any{"stages": []any{map[string]any{"name": "web", "sourceRef": map[string]any{"name": "app"}}}},
	}}
	cluster.Eventually(t, func(ctx context.Context) error {
		err := writer.Create(ctx, object.DeepCopy(), client.DryRunAll)
		if err == nil {
			return errors.New("the policies are not evaluated yet")
		}
		if !strings.Contains(err.Error(), "both are active") {
			return err
		}
		return nil
	})
}

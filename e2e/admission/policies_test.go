package admission_test

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/e2e/cluster"
)

// policy stores a policy of a spec in YAML, until the end of the test, that is for the StageSets of the tenant alone. Its
// name begins with the tenant's.
func (i *installation) policy(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	policy := cluster.Ref("stages.metio.wtf/v1alpha1", "StageSetPolicy", "", i.tenant+"-"+name)
	var content map[string]any
	if err := yaml.Unmarshal([]byte(spec), &content); err != nil {
		t.Fatal(err)
	}
	policy.Object["spec"] = content
	err := unstructured.SetNestedField(policy.Object, i.tenant,
		"spec", "matchConstraints", "namespaceSelector", "matchLabels", "kubernetes.io/metadata.name")
	if err != nil {
		t.Fatal(err)
	}
	apply := client.ApplyConfigurationFromUnstructured(policy)
	if err := i.client.Apply(t.Context(), apply, client.FieldOwner("admin"), client.ForceOwnership); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(i.client.Delete(context.Background(), policy)); err != nil {
			t.Errorf("deleting policy %s: %v", name, err)
		}
	})
	return policy
}

// status waits until this installation's entry in the status of a policy is about its present generation and as all wants
// have it.
func (i *installation) status(
	t *testing.T, policy *unstructured.Unstructured, wants ...func(v1alpha1.InstallationStatus) error,
) v1alpha1.InstallationStatus {
	t.Helper()
	var found v1alpha1.InstallationStatus
	i.WaitFor(t, policy, func(live *unstructured.Unstructured) error {
		var typed v1alpha1.StageSetPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &typed); err != nil {
			return err
		}
		found = v1alpha1.InstallationStatus{}
		for _, entry := range typed.Status.Installations {
			if entry.Name == i.name+"/"+i.name {
				found = entry
			}
		}
		if found.ObservedGeneration != typed.Generation {
			return fmt.Errorf("generation %d is observed, %d is there", found.ObservedGeneration, typed.Generation)
		}
		for _, want := range wants {
			if err := want(found); err != nil {
				return err
			}
		}
		return nil
	})
	return found
}

// inForce waits until policies are evaluated.
func (i *installation) inForce(t *testing.T, policies ...*unstructured.Unstructured) {
	t.Helper()
	for _, policy := range policies {
		i.status(t, policy, condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady))
	}
}

// condition wants a condition of a status and a reason.
func condition(of string, status metav1.ConditionStatus, reason string) func(v1alpha1.InstallationStatus) error {
	return func(entry v1alpha1.InstallationStatus) error {
		found := meta.FindStatusCondition(entry.Conditions, of)
		if found == nil || found.Status != status || found.Reason != reason {
			return fmt.Errorf("condition %s is %+v, want %s (%s)", of, found, status, reason)
		}
		return nil
	}
}

package library_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/builtin"
	"github.com/stageset/stageset/policies/library"
	"github.com/stageset/stageset/policies/policytest"
)

// TestPolicies: every policy can be stored as it is, passes its own tests, and has some that allow and some that do not.
func TestPolicies(t *testing.T) {
	list, err := library.Policies()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 12 {
		t.Errorf("there are %d policies", len(list))
	}
	options, err := builtin.CheckOptions(policies.Config{})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, policy := range list {
		t.Run(policy.Name, func(t *testing.T) {
			if names[policy.Name] {
				t.Error("there is another one with this name")
			}
			names[policy.Name] = true
			warnings, err := policytest.Check(t.Context(), &policy, options)
			if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(policies.Problems(nil), warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			allows, acts := false, false
			for _, test := range policy.Spec.Tests {
				allows = allows || test.Expect == v1alpha1.ExpectAllow
				acts = acts || test.Expect == v1alpha1.ExpectDeny || test.Defaulted != nil
			}
			if !allows || !acts {
				t.Error("has no test that allows, or none that refuses or fills in")
			}
		})
	}
}

// podTemplates are all built-in kinds that pods come from, with what they say of a pod in place of POD.
var podTemplates = map[string]string{
	"Pod":                   "{apiVersion: v1, kind: Pod, spec: POD}",
	"PodTemplate":           "{apiVersion: v1, kind: PodTemplate, template: {spec: POD}}",
	"ReplicationController": "{apiVersion: v1, kind: ReplicationController, spec: {template: {spec: POD}}}",
	"Deployment":            "{apiVersion: apps/v1, kind: Deployment, spec: {template: {spec: POD}}}",
	"StatefulSet":           "{apiVersion: apps/v1, kind: StatefulSet, spec: {template: {spec: POD}}}",
	"DaemonSet":             "{apiVersion: apps/v1, kind: DaemonSet, spec: {template: {spec: POD}}}",
	"ReplicaSet":            "{apiVersion: apps/v1, kind: ReplicaSet, spec: {template: {spec: POD}}}",
	"Job":                   "{apiVersion: batch/v1, kind: Job, spec: {template: {spec: POD}}}",
	"CronJob":               "{apiVersion: batch/v1, kind: CronJob, spec: {jobTemplate: {spec: {template: {spec: POD}}}}}",
}

// TestPodTemplates: there is no way around a policy about pods. It is about every kind that pods come from, and about every container.
func TestPodTemplates(t *testing.T) {
	const fine = "{name: a, image: 'registry.example.com/a:1', resources: {requests: {cpu: 10m, memory: 16Mi}}}"
	const bad = "{name: b, image: nginx, securityContext: {privileged: true}}"
	pods := map[string]string{
		"containers":          "{containers: [" + fine + ", " + bad + "]}",
		"initContainers":      "{containers: [" + fine + "], initContainers: [" + bad + "]}",
		"ephemeralContainers": "{containers: [" + fine + "], ephemeralContainers: [" + bad + "]}",
	}
	list, err := library.Policies()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"allowed-registries", "no-host-access", "no-latest-tag", "resource-requests"} {
		policy := list[slices.IndexFunc(list, func(p v1alpha1.StageSetPolicy) bool { return p.Name == name })]
		policy.Spec.Tests = nil
		for kind, template := range podTemplates {
			policy.Spec.Tests = append(policy.Spec.Tests, podTest(t, kind, template, "{containers: ["+fine+"]}", v1alpha1.ExpectAllow))
			for list, pod := range pods {
				if name == "resource-requests" && list == "ephemeralContainers" {
					continue // they cannot request anything
				}
				policy.Spec.Tests = append(policy.Spec.Tests, podTest(t, kind+", "+list, template, pod, v1alpha1.ExpectDeny))
			}
		}
		results, err := policytest.Run(t.Context(), &policy)
		if err != nil {
			t.Fatal(err)
		}
		for _, result := range results {
			if !result.Passed() {
				t.Errorf("%s: %s: %v", name, result.Test, result.Failures)
			}
		}
	}
}

// podTest is a test of a pod that comes from a template.
func podTest(t *testing.T, name, template, pod string, expect v1alpha1.Expectation) v1alpha1.PolicyTest {
	t.Helper()
	object, err := yaml.YAMLToJSON([]byte(strings.Replace(template, "POD", pod, 1)))
	if err != nil {
		t.Fatal(err)
	}
	return v1alpha1.PolicyTest{
		Name: name, Expect: expect, Object: &runtime.RawExtension{Raw: object},
		Params: &runtime.RawExtension{Raw: []byte(`{"data":{"registries":"registry.example.com"}}`)},
	}
}

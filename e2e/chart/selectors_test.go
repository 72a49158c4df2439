package chart_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// pods are those of one Deployment of a rendering.
type pods struct {
	deployment string
	labels     labels.Set
	ports      []corev1.ContainerPort
}

// In each mode, what selects Pods selects those of one program, network policies select both, and the ports that they name are
// there. What is scraped is every Service with metrics.
func TestSelectorsSelect(t *testing.T) {
	for mode, values := range modes {
		t.Run(mode, func(t *testing.T) {
			objects := render(t, values)
			programs := deployed(t, objects)
			selected := map[string][]string{} // Deployments, by the kind of what selects their Pods
			services := map[string]corev1.Service{}
			for _, object := range objects {
				var selector *metav1.LabelSelector
				var ports []intstr.IntOrString
				switch object.GetKind() {
				case "Service":
					service := convert[corev1.Service](t, object)
					services[service.Name] = service
					selector = &metav1.LabelSelector{MatchLabels: service.Spec.Selector}
					for _, port := range service.Spec.Ports {
						ports = append(ports, port.TargetPort)
					}
				case "NetworkPolicy":
					policy := convert[networkingv1.NetworkPolicy](t, object)
					selector, ports = &policy.Spec.PodSelector, letIn(policy)
				case "PodDisruptionBudget":
					selector = convert[policyv1.PodDisruptionBudget](t, object).Spec.Selector
				default:
					continue
				}
				program := selects(t, object, selector, programs)
				selected[object.GetKind()] = append(selected[object.GetKind()], program.deployment)
				for _, port := range ports {
					if !program.has(port) {
						t.Errorf("%s is about port %s, which %s has not", describe(object), port.String(), program.deployment)
					}
				}
			}
			for kind, deployments := range selected {
				slices.Sort(deployments)
				distinct := len(slices.Compact(slices.Clone(deployments)))
				if distinct != len(deployments) || kind == "NetworkPolicy" && distinct != len(programs) {
					t.Errorf("there is a %s for each of %v", kind, deployments)
				}
			}
			scraped(t, objects, services)
		})
	}
}

// deployed are the Pods of the Deployments, of which each selects its own alone.
func deployed(t *testing.T, objects []*unstructured.Unstructured) []pods {
	t.Helper()
	var programs []pods
	for _, object := range objects {
		if object.GetKind() == "Deployment" {
			template := convert[appsv1.Deployment](t, object).Spec.Template
			programs = append(programs, pods{object.GetName(), template.Labels, template.Spec.Containers[0].Ports})
		}
	}
	if len(programs) != 2 {
		t.Fatalf("there are %d Deployments", len(programs))
	}
	for i, object := range slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool {
		return o.GetKind() != "Deployment"
	}) {
		deployment := convert[appsv1.Deployment](t, object)
		if own := selects(t, object, deployment.Spec.Selector, programs); own.deployment != programs[i].deployment {
			t.Errorf("%s selects the Pods of %s", object.GetName(), own.deployment)
		}
		for _, constraint := range deployment.Spec.Template.Spec.TopologySpreadConstraints {
			if own := selects(t, object, constraint.LabelSelector, programs); own.deployment != programs[i].deployment {
				t.Errorf("%s is spread like %s", object.GetName(), own.deployment)
			}
		}
	}
	return programs
}

// selects is the one program whose Pods a selector selects.
func selects(t *testing.T, by *unstructured.Unstructured, selector *metav1.LabelSelector, programs []pods) pods {
	t.Helper()
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	var found []pods
	for _, program := range programs {
		if parsed.Matches(program.labels) {
			found = append(found, program)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s selects the Pods of %d programs", describe(by), len(found))
	}
	return found[0]
}

// has says whether the Pods listen on a port.
func (p pods) has(port intstr.IntOrString) bool {
	return slices.ContainsFunc(p.ports, func(own corev1.ContainerPort) bool {
		return own.Name == port.StrVal || own.ContainerPort == port.IntVal
	})
}

// letIn are the ports that a policy lets somebody connect to.
func letIn(policy networkingv1.NetworkPolicy) []intstr.IntOrString {
	var ports []intstr.IntOrString
	for _, rule := range policy.Spec.Ingress {
		for _, port := range rule.Ports {
			ports = append(ports, *port.Port)
		}
	}
	return ports
}

// scraped checks that the ServiceMonitor selects all Services with a port for metrics.
func scraped(t *testing.T, objects []*unstructured.Unstructured, services map[string]corev1.Service) {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() != "ServiceMonitor" {
			continue
		}
		wanted, found, err := unstructured.NestedStringMap(object.Object, "spec", "selector", "matchLabels")
		if err != nil || !found {
			t.Fatalf("%s selects nothing (%v)", describe(object), err)
		}
		endpoints, _, err := unstructured.NestedSlice(object.Object, "spec", "endpoints")
		if err != nil || len(endpoints) != 1 || endpoints[0].(map[string]any)["port"] != "metrics" {
			t.Fatalf("endpoints of %s: %v (%v)", describe(object), endpoints, err)
		}
		for name, service := range services {
			if !labels.SelectorFromSet(wanted).Matches(labels.Set(service.Labels)) {
				t.Errorf("%s does not select Service %s", describe(object), name)
			}
			if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == "metrics" }) {
				t.Errorf("%s selects Service %s, which has no metrics", describe(object), name)
			}
		}
	}
}

// convert is a rendered object as its type.
func convert[T any](t *testing.T, object *unstructured.Unstructured) T {
	t.Helper()
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &typed, true); err != nil {
		t.Fatalf("%s: %v", describe(object), err)
	}
	return typed
}

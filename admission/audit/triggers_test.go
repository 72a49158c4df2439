package audit

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Whether the API server asks about deletions is read from the rules, as the API server reads them.
func TestRegistersDeletions(t *testing.T) {
	const update = "{apiGroups: [stages.metio.wtf], resources: [stagesets], operations: [CREATE, UPDATE]}"
	for name, test := range map[string]struct {
		rules string
		want  bool
	}{
		"none":          {"", false},
		"not":           {update, false},
		"yes":           {update + ", {apiGroups: [stages.metio.wtf], resources: [stagesets], operations: [DELETE]}", true},
		"everything":    {"{apiGroups: ['*'], resources: ['*'], operations: ['*']}", true},
		"of policies":   {"{apiGroups: [stages.metio.wtf], resources: [stagesetpolicies], operations: [DELETE]}", false},
		"of a status":   {"{apiGroups: [stages.metio.wtf], resources: [stagesets/status], operations: [DELETE]}", false},
		"of a stranger": {"{apiGroups: [example.com], resources: [stagesets], operations: [DELETE]}", false},
	} {
		t.Run(name, func(t *testing.T) {
			var configuration, other admissionregistrationv1.ValidatingWebhookConfiguration
			content := "webhooks: [{name: another}, {name: ours, rules: [" + test.rules + "]}]"
			if err := yaml.UnmarshalStrict([]byte(content), &configuration); err != nil {
				t.Fatal(err)
			}
			if got := registersDeletions(&configuration); got != test.want {
				t.Errorf("got %t", got)
			}
			if same := sameDeletions(&other, &configuration); same == test.want {
				t.Errorf("as in one that registers nothing: %t", same)
			}
		})
	}
}

// A Namespace wakes the audit when policies select it by something else, or may read something else of it.
func TestSameNamespace(t *testing.T) {
	before := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}}
	for name, test := range map[string]struct {
		change func(*corev1.Namespace)
		want   bool
	}{
		"label":      {func(n *corev1.Namespace) { n.Labels["a"] = "c" }, false},
		"annotation": {func(n *corev1.Namespace) { n.Annotations = map[string]string{"a": "b"} }, false},
		"the rest": {func(n *corev1.Namespace) {
			n.ResourceVersion, n.Status.Phase = "2", corev1.NamespaceTerminating
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			after := before.DeepCopy()
			test.change(after)
			if got := sameNamespace(before, after); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

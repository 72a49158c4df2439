package webhook

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/policies"
)

// policyRequest creates a policy called p with the spec, or updates it from the old one.
func policyRequest(t *testing.T, old, spec string) admission.Request {
	t.Helper()
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Create, Name: "p",
		Kind: metav1.GroupVersionKind{Group: "stages.metio.wtf", Version: "v1alpha1", Kind: "StageSetPolicy"},
	}}
	request.Object = rawPolicy(t, spec)
	if old != "" {
		request.Operation, request.OldObject = admissionv1.Update, rawPolicy(t, old)
	}
	return request
}

func rawPolicy(t *testing.T, spec string) runtime.RawExtension {
	t.Helper()
	content := map[string]any{"metadata": map[string]any{"name": "p"}}
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(spec), &parsed); err != nil {
		t.Fatal(err)
	}
	content["spec"] = parsed
	text, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: text}
}

// Everything that is wrong is said at once, where it is; what is only questionable is a warning (P-10).
func TestPoliciesAreChecked(t *testing.T) {
	const good = "validations: [{name: r, expression: 'has(object.spec.interval)', message: m}]"
	for name, test := range map[string]struct {
		old, spec string
		builtIn   []string
		want      []string // field: message of the causes; none if it is allowed
		warnings  []string // parts
	}{
		"good": {spec: good},
		"two errors": {
			spec: "validations: [{name: r, expression: \"true &&\\n nobody\", message: m}, {name: s, expression: '1', message: m}]",
			want: []string{
				"spec.validations[r].expression: line 2, column 2: undeclared reference to 'nobody'",
				"spec.validations[s].expression: evaluates to int, not to bool",
			},
		},
		"a field that StageSets do not have": {
			spec: "validations: [{name: r, expression: 'has(object.spec.intervall)', message: m}]",
			want: []string{"spec.validations[r].expression: line 1, column 4: undefined field 'intervall'"},
		},
		"a test that fails": {
			spec: good + "\ntests: [{name: t, object: {spec: {interval: 1m}}, expect: deny}]",
			want: []string{"spec.tests[t]: expected deny, but it is allowed"},
		},
		"the name of a built-in policy": {
			spec: good, builtIn: []string{"p"},
			want: []string{"metadata.name: is the name of a built-in policy: choose another"},
		},
		"a Secret as a parameter": {
			spec: good + "\nparamKind: {apiVersion: v1, kind: Secret}\nparamRef: {name: a}",
			want: []string{"spec.paramKind: is Secret, which is never a parameter: every message could show it"},
		},
		"a rule that the reconciler does not evaluate": {
			spec:     "validations: [{name: r, expression: \"request.userInfo.username != ''\", message: m}]",
			warnings: []string{"policy p: spec.validations[r].expression: reads who asks, or how"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			policies := &StageSetPolicies{Options: policies.CheckOptions{BuiltIn: test.builtIn}}
			response := policies.Validate(t.Context(), policyRequest(t, test.old, test.spec))
			if response.Allowed != (test.want == nil) {
				t.Errorf("allowed is %t: %v", response.Allowed, response.Result)
			}
			var got []string
			if !response.Allowed {
				if response.Result.Code != http.StatusUnprocessableEntity || response.Result.Details.Name != "p" {
					t.Errorf("the result is %+v", response.Result)
				}
				for _, cause := range response.Result.Details.Causes {
					got = append(got, cause.Field+": "+cause.Message)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("causes (-want +got):\n%s", diff)
			}
			if len(response.Warnings) != len(test.warnings) {
				t.Fatalf("warnings: %q", response.Warnings)
			}
			for i, part := range test.warnings {
				if !strings.Contains(response.Warnings[i], part) {
					t.Errorf("warning %q lacks %q", response.Warnings[i], part)
				}
			}
		})
	}
}

// What is not asked about is not refused.
func TestPolicyDeletionsPass(t *testing.T) {
	request := policyRequest(t, "{}", "{}")
	request.Operation, request.Object = admissionv1.Delete, runtime.RawExtension{}
	if response := (&StageSetPolicies{}).Validate(t.Context(), request); !response.Allowed {
		t.Errorf("refused: %v", response.Result)
	}
}

// The reason is that of the rules, if they agree on one that there is.
func TestReasonOfARefusal(t *testing.T) {
	for name, test := range map[string]struct {
		reasons []metav1.StatusReason
		want    metav1.StatusReason
		code    int32
	}{
		"none":             {[]metav1.StatusReason{""}, metav1.StatusReasonInvalid, 422},
		"one":              {[]metav1.StatusReason{"Forbidden", "Forbidden"}, metav1.StatusReasonForbidden, 403},
		"two":              {[]metav1.StatusReason{"Forbidden", "Unauthorized"}, metav1.StatusReasonInvalid, 422},
		"one that is none": {[]metav1.StatusReason{"Because"}, metav1.StatusReasonInvalid, 422},
	} {
		t.Run(name, func(t *testing.T) {
			var violations []policies.Violation
			for _, reason := range test.reasons {
				violations = append(violations, policies.Violation{Policy: "p", Rule: "r", Message: "m", Reason: reason})
			}
			result := denied(admission.Request{}, violations).Result
			if result.Reason != test.want || result.Code != test.code {
				t.Errorf("reason %s, code %d", result.Reason, result.Code)
			}
			if verdict(denied(admission.Request{}, violations)) != verdictDenied {
				t.Error("it is not counted as denied")
			}
		})
	}
}

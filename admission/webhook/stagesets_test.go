package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// object is the StageSet of YAML, nil for none.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	if text == "" {
		return nil
	}
	return stageSet(t, text)
}

func TestValidate(t *testing.T) {
	const (
		fine     = "spec: {interval: 1h}"
		changed  = "spec: {interval: 2h}"
		noted    = "{spec: {interval: 1h}, metadata: {annotations: {a: b}}}"
		other    = "{spec: {interval: 1h}, metadata: {labels: {team: other}}}"
		paused   = "{spec: {interval: 1h, suspend: true}, metadata: {labels: {team: other}}}"
		old      = "{spec: {interval: 1h}, metadata: {labels: {team: old}}}"
		deleting = "{spec: {interval: 1h}, metadata: {deletionTimestamp: '2026-01-01T00:00:00Z'}}"

		closed   = "metadata.namespace: namespace/open: closed"
		notYours = "metadata.labels: team/other: not yours"
		recorded = "every/object: recorded"
	)
	tooLate := "spec: " + violationDeleting.String()
	for name, test := range map[string]struct {
		namespace    string
		old, updated string
		causes       []string // "field: message" of a refusal; nil when it is allowed
		warnings     []string
		audit        string
	}{
		"create":                          {"open", "", fine, nil, nil, recorded},
		"create with every violation":     {"closed", "", other, []string{closed, notYours}, nil, recorded},
		"create with a warning":           {"open", "", old, nil, []string{"teams/old: gone soon"}, recorded},
		"update":                          {"open", fine, changed, nil, nil, ""},
		"update of the spec":              {"closed", fine, changed, []string{closed}, nil, ""},
		"update of a label":               {"open", fine, other, []string{notYours}, nil, ""},
		"update of what was wrong before": {"closed", fine, noted, nil, []string{"namespace/open: closed"}, ""},
		"suspend":                         {"closed", other, paused, nil, nil, ""},
		"update of what is deleted":       {"open", deleting, changed, []string{tooLate}, nil, ""},
		"delete":                          {"open", fine, "", nil, nil, ""},
		"delete that is refused":          {"open", other, "", []string{notYours}, nil, ""},
		"delete in a dying namespace":     {"dying", other, "", nil, nil, ""}, // P-28
		"create in a dying namespace":     {"dying", "", fine, []string{closed}, nil, recorded},
		"no change at all":                {"nowhere", fine, fine, nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			request := newRequest(t, test.namespace, object(t, test.old), object(t, test.updated))
			got := newStageSets(t).Validate(t.Context(), request)
			if got.Allowed != (test.causes == nil) {
				t.Errorf("allowed is %t: %+v", got.Allowed, got.Result)
			}
			if diff := cmp.Diff(test.causes, causes(got)); diff != "" {
				t.Errorf("causes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.warnings, got.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.audit, got.AuditAnnotations[auditViolations]); diff != "" {
				t.Errorf("audit annotation (-want +got):\n%s", diff)
			}
		})
	}
}

// causes are "field: message" of a refusal, whose Status must be what clients expect of an invalid object.
func causes(response admission.Response) []string {
	if response.Allowed {
		return nil
	}
	status := response.Result
	if status.Reason != metav1.StatusReasonInvalid || status.Code != http.StatusUnprocessableEntity {
		return []string{"not a refusal: " + status.Message}
	}
	var found []string
	for _, cause := range status.Details.Causes {
		found = append(found, cause.Field+": "+cause.Message)
	}
	return found
}

// P-21: a namespace that cannot be read is a failure of the rules that look at it, with the reason, and never "no match".
func TestValidateWithoutTheNamespace(t *testing.T) {
	got := newStageSets(t).Validate(t.Context(), newRequest(t, "nowhere", nil, stageSet(t, "spec: {interval: 1h}")))
	found := causes(got)
	if len(found) != 1 || !strings.HasPrefix(found[0], "metadata.namespace: namespace/open: cannot be evaluated") {
		t.Errorf("causes: %q", found)
	}
	if len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], `reading Namespace nowhere: namespaces "nowhere" not found`) {
		t.Errorf("warnings: %q", got.Warnings)
	}
}

// TestOurAccountIsNotTold: what the API server says about our own account is for the log, and not for tenants.
func TestOurAccountIsNotTold(t *testing.T) {
	for name, ask := range map[string]func(*StageSets, context.Context, admission.Request) admission.Response{
		"default": (*StageSets).Default, "validate": (*StageSets).Validate,
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			logger := funcr.New(func(_, line string) { log.WriteString(line) }, funcr.Options{})
			stageSets := newStageSets(t)
			stageSets.Namespaces.Live = forbids{}
			request := newRequest(t, "open", nil, stageSet(t, "spec: {interval: 1h}"))
			got := ask(stageSets, ctrllog.IntoContext(t.Context(), logger), request)
			warnings := strings.Join(got.Warnings, "\n")
			if !strings.Contains(warnings, "reading Namespace open: this installation may not") || strings.Contains(warnings, "joe") {
				t.Errorf("warnings: %q", warnings)
			}
			if !strings.Contains(log.String(), "joe cannot get") {
				t.Errorf("the log does not say why: %s", log.String())
			}
		})
	}
}

// forbids may read nothing.
type forbids struct{ client.Reader }

func (forbids) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, key.Name, errors.New("joe cannot get it"))
}

// P-28: a namespace that is being deleted waits for no rule, also when the cache has not heard of it.
func TestDeleteAsksAgainBeforeItRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		live    metav1.ObjectMeta
		allowed bool
	}{
		"dying": {metav1.ObjectMeta{Name: "n", DeletionTimestamp: ptr.To(metav1.Now()), Finalizers: []string{"a/b"}}, true},
		"alive": {metav1.ObjectMeta{Name: "n"}, false},
		"gone":  {metav1.ObjectMeta{Name: "another"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			stageSets := newStageSets(t)
			stageSets.Namespaces = Namespaces{
				Cache: newReader(t, newNamespace(metav1.ObjectMeta{Name: "n"})), Live: newReader(t, newNamespace(test.live)),
			}
			other := object(t, "{spec: {interval: 1h}, metadata: {labels: {team: other}}}")
			if got := stageSets.Validate(t.Context(), newRequest(t, "n", other, nil)); got.Allowed != test.allowed {
				t.Errorf("allowed is %t: %+v", got.Allowed, got.Result)
			}
		})
	}
}

func TestDefault(t *testing.T) {
	const (
		fine     = "spec: {interval: 1h}"
		changed  = "spec: {interval: 2h}"
		accounts = "spec: {interval: 1h, serviceAccountName: mine}"
		filled   = "spec: {interval: 1h, serviceAccountName: deployer}"
		labelled = "{spec: {interval: 1h}, metadata: {labels: {a: b}}}"
		paused   = "spec: {interval: 1h, suspend: true}"
		deleting = "{spec: {interval: 1h}, metadata: {deletionTimestamp: '2026-01-01T00:00:00Z'}}"
	)
	for name, test := range map[string]struct {
		namespace    string
		old, updated string
		want         string // of spec.serviceAccountName afterwards
		warned       bool
	}{
		"create":                          {"open", "", fine, "deployer", false},
		"create with an account":          {"open", "", accounts, "mine", false},
		"create in an unknown namespace":  {"nowhere", "", fine, "deployer", true},
		"update of the spec":              {"open", fine, changed, "deployer", false},
		"update that takes the field out": {"open", filled, fine, "deployer", false},
		"update of a label":               {"open", fine, labelled, "", false},
		"suspend":                         {"open", fine, paused, "", false},
		"update of what is deleted":       {"open", deleting, changed, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			stageSets := newStageSets(t)
			updated := object(t, test.updated)
			request := newRequest(t, test.namespace, object(t, test.old), updated)
			got := stageSets.Default(t.Context(), request)
			if !got.Allowed {
				t.Fatalf("refused: %+v", got.Result)
			}
			if warned := len(got.Warnings) > 0; warned != test.warned {
				t.Errorf("warnings: %q", got.Warnings)
			}
			patched := applyPatch(t, request.Object.Raw, got)
			account, _, _ := unstructured.NestedString(patched.Object, "spec", "serviceAccountName")
			if account != test.want {
				t.Errorf("account %q, want %q", account, test.want)
			}
			again := stageSets.Default(t.Context(), newRequest(t, test.namespace, object(t, test.old), patched))
			if len(again.Patches) > 0 {
				t.Errorf("defaulting twice is not the same as once: %v", again.Patches)
			}
		})
	}
}

// What a policy cannot fill in is decided by its failurePolicy, as the reconciler will decide it; who only adds a label is not
// kept from that.
func TestDefaultThatCannotBeEvaluated(t *testing.T) {
	const failing = `
- metadata: {name: %s}
  spec:
    failurePolicy: %s
    mutations:
    - patchType: ApplyConfiguration
      applyConfiguration: {expression: "Object{spec: Object.spec{interval: object.spec.none}}"}`
	const fine, labelled = "spec: {suspend: true}", "{spec: {suspend: true}, metadata: {labels: {a: b}}}"
	for name, test := range map[string]struct {
		failurePolicy string
		old, updated  string
		denied        bool
	}{
		"create":          {"Fail", "", fine, true},
		"update":          {"Fail", "spec: {suspend: false, interval: 1h}", "spec: {suspend: false}", true},
		"suspend":         {"Fail", "spec: {suspend: false}", fine, false},
		"label":           {"Fail", fine, labelled, false},
		"create, ignored": {"Ignore", "", fine, false},
		"label, ignored":  {"Ignore", fine, labelled, false},
	} {
		t.Run(name, func(t *testing.T) {
			set := compile(t, fmt.Sprintf(failing, "one", test.failurePolicy)+fmt.Sprintf(failing, "two", test.failurePolicy))
			stageSets := newStageSets(t)
			stageSets.Policies = func() Policies { return set }
			got := stageSets.Default(t.Context(), newRequest(t, "open", object(t, test.old), object(t, test.updated)))
			var want []string
			if test.denied {
				for _, policy := range []string{"one", "two"} {
					want = append(want, "spec: "+policy+"/mutations[0]: cannot be evaluated: reads object.spec.none, "+
						"but none is not set (guard it with has() or .?)")
				}
			}
			if diff := cmp.Diff(want, causes(got)); diff != "" || got.Allowed == test.denied {
				t.Errorf("causes (-want +got):\n%s", diff)
			}
		})
	}
}

// applyPatch is what the API server makes of a response.
func applyPatch(t *testing.T, original []byte, response admission.Response) *unstructured.Unstructured {
	t.Helper()
	content, err := json.Marshal(response.Patches)
	if err != nil {
		t.Fatal(err)
	}
	if len(response.Patches) > 0 {
		patch, err := jsonpatch.DecodePatch(content)
		if err != nil {
			t.Fatal(err)
		}
		if original, err = patch.Apply(original); err != nil {
			t.Fatal(err)
		}
	}
	patched := &unstructured.Unstructured{}
	if err := patched.UnmarshalJSON(original); err != nil {
		t.Fatal(err)
	}
	return patched
}

// Requests that cannot be decoded are refused as such, and never let through.
func TestRequestsThatAreNone(t *testing.T) {
	for name, change := range map[string]func(*admission.Request){
		"no object":    func(r *admission.Request) { r.Object.Raw = nil },
		"null":         func(r *admission.Request) { r.Object.Raw = []byte("null") },
		"not JSON":     func(r *admission.Request) { r.Object.Raw = []byte("{") },
		"not a kind":   func(r *admission.Request) { r.Object.Raw = []byte(`{"interval": 1}`) },
		"bad old one":  func(r *admission.Request) { r.OldObject.Raw = []byte("[]") },
		"not a object": func(r *admission.Request) { r.Object.Raw = []byte(`"text"`) },
	} {
		t.Run(name, func(t *testing.T) {
			stageSets := newStageSets(t)
			request := newRequest(t, "open", nil, stageSet(t, "spec: {interval: 1h}"))
			change(&request)
			for kind, got := range map[string]admission.Response{
				"validating": stageSets.Validate(t.Context(), request), "mutating": stageSets.Default(t.Context(), request),
			} {
				if got.Allowed || got.Result.Code != http.StatusBadRequest {
					t.Errorf("%s: allowed is %t, %+v", kind, got.Allowed, got.Result)
				}
			}
		})
	}
}

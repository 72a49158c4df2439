package preflight

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
)

func TestConflictAction(t *testing.T) {
	const (
		claim     = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, namespace: team-a}"
		forced    = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {stages.metio.wtf/force: enabled}}"
		protected = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plain, annotations: {stages.metio.wtf/prune: disabled}}"
		claimed   = "apiVersion: v1\nkind: PersistentVolumeClaim\n" +
			"metadata: {name: data, annotations: {stages.metio.wtf/force: enabled}}"
	)
	rule := func(action v1.ConflictAction, target v1.ConflictTarget) v1.ConflictRule {
		return v1.ConflictRule{Action: action, Target: target}
	}
	policy := func(fallback v1.ConflictAction, rules ...v1.ConflictRule) v1.Stage {
		return v1.Stage{ConflictPolicy: &v1.ConflictPolicy{Default: fallback, Rules: rules}}
	}
	force := v1.Stage{Force: true}
	lossy := rule(v1.ConflictRecreate, v1.ConflictTarget{Kind: "PersistentVolumeClaim"})
	lossy.AllowDataLoss = true
	for name, tc := range map[string]struct {
		stage  v1.Stage
		object string
		live   string // as object if it is empty
		want   v1.ConflictAction
		advice string
	}{
		"nothing is said": {object: plain, want: v1.ConflictFail, advice: "set stages[].conflictPolicy"},
		"force":           {stage: force, object: plain, want: v1.ConflictRecreate},
		"default":         {stage: policy(v1.ConflictKeepExisting), object: plain, want: v1.ConflictKeepExisting},
		"default wins over force": {
			stage:  v1.Stage{Force: true, ConflictPolicy: &v1.ConflictPolicy{Default: v1.ConflictFail}},
			object: plain, want: v1.ConflictFail, advice: "set stages[].conflictPolicy",
		},
		"force, and rules without a default": {
			stage: v1.Stage{Force: true, ConflictPolicy: &v1.ConflictPolicy{Rules: []v1.ConflictRule{
				rule(v1.ConflictFail, v1.ConflictTarget{Kind: "Secret"})}}},
			object: plain, want: v1.ConflictRecreate,
		},
		"annotation": {object: forced, want: v1.ConflictRecreate},
		"a rule wins over the annotation": {
			stage:  policy("", rule(v1.ConflictFail, v1.ConflictTarget{Name: "a"})),
			object: forced, want: v1.ConflictFail, advice: "set stages[].conflictPolicy",
		},
		"the first rule that matches": {
			stage: policy(v1.ConflictFail,
				rule(v1.ConflictFail, v1.ConflictTarget{APIVersion: "v1", Kind: "ConfigMap", Name: "plain", Namespace: "team-b"}),
				rule(v1.ConflictFail, v1.ConflictTarget{APIVersion: "apps/v1"}),
				rule(v1.ConflictRecreate, v1.ConflictTarget{APIVersion: "v1", Kind: "ConfigMap", Name: "plain", Namespace: "team-a"}),
				rule(v1.ConflictKeepExisting, v1.ConflictTarget{})),
			object: plain, want: v1.ConflictRecreate,
		},
		"what asks never to be deleted": {
			stage:  policy("", rule(v1.ConflictRecreate, v1.ConflictTarget{})),
			object: protected, live: plain, want: v1.ConflictFail, advice: "keeps it from being deleted",
		},
		"what somebody has asked that of": {
			stage: force, object: plain, live: protected, want: v1.ConflictFail, advice: "keeps it from being deleted",
		},
		"what asks that may be kept": {stage: policy(v1.ConflictKeepExisting), object: protected, want: v1.ConflictKeepExisting},
		"a claim by force":           {stage: force, object: claim, want: v1.ConflictFail, advice: "allowDataLoss"},
		"a claim by annotation":      {object: claimed, want: v1.ConflictFail, advice: "allowDataLoss"},
		"a claim by a rule": {
			stage:  policy("", rule(v1.ConflictRecreate, v1.ConflictTarget{})),
			object: claim, want: v1.ConflictFail, advice: "allowDataLoss",
		},
		"a claim, with loss allowed": {stage: policy("", lossy), object: claim, want: v1.ConflictRecreate},
		"a claim that is kept":       {stage: policy(v1.ConflictKeepExisting), object: claim, want: v1.ConflictKeepExisting},
		"a namespace":                {stage: force, object: namespace, want: v1.ConflictFail, advice: "never deleted"},
		"a definition":               {stage: force, object: crd, want: v1.ConflictFail, advice: "never deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			live := object(t, tc.object)
			if tc.live != "" {
				live = object(t, tc.live)
			}
			got, advice := ConflictsOf(tc.stage).action(object(t, tc.object), live)
			if got != tc.want || !strings.Contains(advice, tc.advice) || tc.advice == "" && advice != "" {
				t.Errorf("got %s (%s), want %s (%s)", got, advice, tc.want, tc.advice)
			}
		})
	}
}

// T-48, T-49: what a refusal is about is not read from its words.
func TestRefusalsThatMayBeAboutAChange(t *testing.T) {
	invalid := func(fields ...string) error {
		err := apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "web", nil)
		for _, field := range fields {
			err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
				Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: "field is immutable",
			})
		}
		return err
	}
	resource := schema.GroupResource{Resource: "services"}
	for name, tc := range map[string]struct {
		refusal error
		want    bool
	}{
		"a field of the spec":               {invalid("spec.clusterIPs[0]"), true},
		"no field, as a policy says":        {invalid(""), true},
		"metadata":                          {invalid("metadata.uid"), false},
		"metadata too":                      {invalid("spec.clusterIP", "metadata.namespace"), false},
		"a field that begins like metadata": {invalid("metadataPolicy"), true},
		"forbidden":                         {apierrors.NewForbidden(resource, "web", errors.New("no")), true},
		"a webhook without a code":          {apierrors.NewBadRequest("denied"), true},
		"a conflict":                        {apierrors.NewConflict(resource, "web", errors.New("modified")), false},
		"a fault":                           {apierrors.NewInternalError(errors.New("broken")), false},
		"not found":                         {apierrors.NewNotFound(resource, "web"), false},
		"no answer":                         {errors.New("timeout"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := mayBeAboutChange(tc.refusal); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

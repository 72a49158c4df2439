package rules

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/source"
)

const (
	needsAccount = `
metadata: {name: account}
spec:
  validations:
  - {name: named, expression: "object.spec.?serviceAccountName.orValue('') != ''", message: name an account}`
	fillsAccount = `
metadata: {name: fill}
spec:
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{spec: Object.spec{serviceAccountName: 'filled'}}"}`
	ownSources = `
metadata: {name: sources}
spec:
  target: Source
  validations:
  - {name: host, expression: "source.url.startsWith('https://git.example/')", message: only git.example}`
	warnsOfSecrets = `
metadata: {name: secrets}
spec:
  target: Manifest
  validationActions: [Warn]
  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: ['*'], kinds: [Secret]}]}
  validations:
  - {name: none, expression: "false", message: no Secrets in Git}`
	noDefaultAccount = `
metadata: {name: applier}
spec:
  target: Manifest
  validations:
  - {name: named, expression: "target.serviceAccountName != 'default'", message: not as default}`
)

func compile(t *testing.T, texts ...string) *Policies {
	t.Helper()
	var list []v1alpha1.StageSetPolicy
	for _, text := range texts {
		var policy v1alpha1.StageSetPolicy
		if err := yaml.UnmarshalStrict([]byte(text), &policy); err != nil {
			t.Fatal(err)
		}
		list = append(list, policy)
	}
	set, err := policies.Compile(t.Context(), list, policies.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return New(func() *policies.Set { return set })
}

// as is this cluster as an account.
func as(account string) v1alpha1.TargetFacts {
	return v1alpha1.TargetFacts{ServiceAccountName: account}
}

func stored(account string) *v1.StageSet {
	return &v1.StageSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "app"},
		Spec: v1.StageSetSpec{ServiceAccountName: account, Stages: []v1.Stage{{
			Name: "web", SourceRef: v1.SourceReference{Kind: v1.SourceKindGitRepository, Name: "app"},
		}}},
	}
}

var team = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}

func admit(t *testing.T, set *Policies, account string) *Review {
	t.Helper()
	_, review, err := set.Admit(t.Context(), stored(account), team)
	if err != nil {
		t.Fatal(err)
	}
	return review
}

func TestAdmitRefusesWhatIsStoredInTheWebhooksWords(t *testing.T) {
	_, _, err := compile(t, needsAccount).Admit(t.Context(), stored(""), team)
	refused := failure.From(err)
	if refused == nil || refused.Reason != v1.ReasonPolicyViolation || refused.Kind != failure.Stalled {
		t.Fatalf("got %v, want a stalled PolicyViolation", err)
	}
	if diff := cmp.Diff("account/named: name an account", refused.Error()); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

func TestAdmitDefaultsACopyBeforeItAsks(t *testing.T) {
	original := stored("")
	defaulted, _, err := compile(t, needsAccount, fillsAccount).Admit(t.Context(), original, team)
	if err != nil {
		t.Fatal(err)
	}
	if defaulted.Spec.ServiceAccountName != "filled" || original.Spec.ServiceAccountName != "" {
		t.Errorf("defaulted has %q, the original %q", defaulted.Spec.ServiceAccountName, original.Spec.ServiceAccountName)
	}
}

func TestReviewCollectsEverything(t *testing.T) {
	pin := source.Pin{Kind: v1.SourceKindGitRepository, Namespace: "team-a", Name: "app", Origin: "https://elsewhere.example/app"}
	secret := object("v1", "Secret", "key")
	cases := map[string]struct {
		ask        func(ctx context.Context, review *Review)
		denied     string
		wantWarned string
	}{
		"nothing was asked": {ask: func(context.Context, *Review) {}},
		"a source": {
			ask:    func(ctx context.Context, review *Review) { review.Source(ctx, "web", pin) },
			denied: "stage web: GitRepository team-a/app: sources/host: only git.example",
		},
		"an object, by who applies it": {
			ask: func(ctx context.Context, review *Review) {
				review.Manifests(ctx, "web", pin, as("default"), rendered(object("apps/v1", "Deployment", "web")))
			},
			denied: "stage web: Deployment.apps team-a/web: applier/named: not as default",
		},
		"a warning denies nothing and is said once": {
			ask: func(ctx context.Context, review *Review) {
				review.Manifests(ctx, "web", pin, as("deployer"), rendered(secret))
				review.Manifests(ctx, "web", pin, as("deployer"), rendered(secret))
			},
			wantWarned: "stage web: Secret team-a/key: secrets/none: no Secrets in Git",
		},
		"all at once": {
			ask: func(ctx context.Context, review *Review) {
				review.Source(ctx, "web", pin)
				review.Manifests(ctx, "web", pin, as("default"), rendered(object("apps/v1", "Deployment", "web")))
			},
			denied: "stage web: GitRepository team-a/app: sources/host: only git.example; " +
				"stage web: Deployment.apps team-a/web: applier/named: not as default",
		},
	}
	set := compile(t, ownSources, warnsOfSecrets, noDefaultAccount)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			review := admit(t, set, "deployer")
			tc.ask(t.Context(), review)
			got := ""
			if err := review.Err(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.denied, got); diff != "" {
				t.Errorf("denied (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantWarned, review.Warnings()); diff != "" {
				t.Errorf("warned (-want +got):\n%s", diff)
			}
		})
	}
}

// A policy may read a rendered Secret, and what CEL or its author says of it may quote a value. No value may get into a
// status that viewers read.
func TestNoValueOfASecretIsQuoted(t *testing.T) {
	const value = "aHVudGVyMi1jYW5hcnk="
	secret := object("v1", "Secret", "key")
	secret.Object["data"] = map[string]any{"password": value}
	expressions := map[string]string{
		"its author quotes it":          `messageExpression: "'not ' + object.data.password", expression: "false"`,
		"its author quotes a part":      `messageExpression: "'not ' + object.data.password.substring(0, 4)", expression: "false"`,
		"an evaluation error quotes it": `expression: "int(object.data.password) > 0"`,
		"so does one of a missing key":  `expression: "{'a': 1}[object.data.password] > 0"`,
	}
	for name, expression := range expressions {
		t.Run(name, func(t *testing.T) {
			review := admit(t, compile(t, "metadata: {name: reads}\nspec:\n  target: Manifest\n  validations:\n"+
				"  - {name: value, message: no, "+expression+"}"), "deployer")
			review.Manifests(t.Context(), "web", source.Pin{Kind: v1.SourceKindGitRepository, Name: "app"}, as("deployer"), rendered(secret))
			err := review.Err()
			if err == nil {
				t.Fatal("nothing is denied")
			}
			if strings.Contains(err.Error(), value[:4]) {
				t.Errorf("%q quotes the value", err)
			}
			if !strings.Contains(err.Error(), "stage web: Secret team-a/key: reads/value: ") {
				t.Errorf("%q does not name stage, object and rule", err)
			}
		})
	}
}

func TestAMessageListsTwentyAndCounts(t *testing.T) {
	review := admit(t, compile(t, noDefaultAccount), "deployer")
	var objects []*unstructured.Unstructured
	for i := range maxViolations + 3 {
		objects = append(objects, object("v1", "ConfigMap", fmt.Sprintf("c%d", i)))
	}
	for range 2 { // who says it again says nothing new
		review.Manifests(t.Context(), "web", source.Pin{}, as("default"), rendered(objects...))
	}
	got := review.Err().Error()
	if !strings.HasSuffix(got, "not as default; and 3 more") || strings.Count(got, "not as default;") != maxViolations {
		t.Errorf("got %q", got)
	}
	if kept := len(review.denied.kept); kept != maxViolations {
		t.Errorf("%d lines are kept", kept)
	}
}

// However many objects a release has, its policies look at them for a bounded time: what is left is denied by failurePolicy.
func TestTheTimeOfAReleaseIsBounded(t *testing.T) {
	review := admit(t, compile(t, noDefaultAccount), "deployer")
	review.left = 0
	review.Manifests(t.Context(), "web", source.Pin{}, as("deployer"), rendered(object("v1", "ConfigMap", "late")))
	if err := review.Err(); err == nil || !strings.Contains(err.Error(), "team-a/late: applier/named: cannot be evaluated") {
		t.Errorf("got %v, want that the object was not evaluated in time", err)
	}
	timely := admit(t, compile(t, noDefaultAccount), "deployer")
	timely.Manifests(t.Context(), "web", source.Pin{}, as("deployer"), rendered(object("v1", "ConfigMap", "early")))
	if err := timely.Err(); err != nil {
		t.Error(err)
	}
	if timely.left >= releaseTime {
		t.Errorf("of %s, %s is left", releaseTime, timely.left)
	}
}

func TestIdentityFollowsThePolicies(t *testing.T) {
	one, other := compile(t, needsAccount), compile(t, needsAccount)
	if admit(t, one, "a").Identity() != admit(t, one, "b").Identity() {
		t.Error("one set has two identities")
	}
	if admit(t, one, "a").Identity() == admit(t, other, "a").Identity() {
		t.Error("a run would go on under policies that it was not checked by")
	}
	relabelled := team.DeepCopy()
	relabelled.ResourceVersion += "1"
	_, review, err := one.Admit(t.Context(), stored("a"), relabelled)
	if err != nil {
		t.Fatal(err)
	}
	if review.Identity() == admit(t, one, "a").Identity() {
		t.Error("a run would go on in a Namespace that has changed since it was checked")
	}
	labelled := stored("a")
	labelled.Labels = map[string]string{"a": "b"}
	if _, review, err = one.Admit(t.Context(), labelled, team); err != nil {
		t.Fatal(err)
	}
	if review.Identity() == admit(t, one, "a").Identity() {
		t.Error("a run would go on for a StageSet with other labels than it was checked with")
	}
}

// limit finds one ConfigMap.
type limit struct{}

func (limit) Params(_ context.Context, query policies.ParamQuery) ([]*unstructured.Unstructured, error) {
	found := object("v1", "ConfigMap", query.Name)
	found.SetResourceVersion("7")
	return []*unstructured.Unstructured{found}, nil
}

// P-15: which version of its parameters a policy denied by is logged, once a pass.
func TestTheParametersOfADenialAreLogged(t *testing.T) {
	const spec = `
  paramKind: {apiVersion: v1, kind: ConfigMap}
  paramRef: {name: limit}
  validations: [{name: r, expression: "%s", message: no}]`
	var list []v1alpha1.StageSetPolicy
	for name, expression := range map[string]string{"denies": "false", "allows": "true"} {
		var policy v1alpha1.StageSetPolicy
		text := "metadata: {name: " + name + "}\nspec:\n  target: Manifest" + fmt.Sprintf(spec, expression)
		if err := yaml.UnmarshalStrict([]byte(text), &policy); err != nil {
			t.Fatal(err)
		}
		list = append(list, policy)
	}
	set, err := policies.Compile(t.Context(), list, policies.Options{Lookup: limit{}})
	if err != nil {
		t.Fatal(err)
	}
	var logged []string
	ctx := logr.NewContext(t.Context(), funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{}))
	review := admit(t, New(func() *policies.Set { return set }), "a")
	for _, name := range []string{"a", "b"} {
		review.Manifests(ctx, "web", source.Pin{}, as("a"), rendered(object("v1", "Secret", name)))
	}
	want := []string{`"level"=0 "msg"="denied by a policy with parameters" "policy"="denies" ` +
		`"params"="denies: ConfigMap team-a/limit, resourceVersion 7"`}
	if diff := cmp.Diff(want, logged); diff != "" {
		t.Errorf("logged (-want +got):\n%s", diff)
	}
}

// rendered are objects with hashes.
func rendered(objects ...*unstructured.Unstructured) iter.Seq2[*unstructured.Unstructured, string] {
	return func(yield func(*unstructured.Unstructured, string) bool) {
		for _, object := range objects {
			if !yield(object, fmt.Sprint(object.Object)) {
				return
			}
		}
	}
}

func object(apiVersion, kind, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion(apiVersion)
	obj.SetKind(kind)
	obj.SetNamespace("team-a")
	obj.SetName(name)
	return obj
}

package policies_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// TestAuthorizer: the API server is asked exactly what the expression asks, and only its yes is one.
func TestAuthorizer(t *testing.T) {
	asker := authorizationv1.SubjectAccessReviewSpec{
		User: "joe", UID: "7", Groups: []string{"devs"}, Extra: map[string]authorizationv1.ExtraValue{"scope": {"a", "b"}},
	}
	resource := func(a authorizationv1.ResourceAttributes) *authorizationv1.SubjectAccessReviewSpec {
		spec := asker
		spec.ResourceAttributes = &a
		return &spec
	}
	path := asker
	path.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: "/healthz", Verb: "get"}
	const accounts = "authorizer.group('').resource('serviceaccounts')"
	const impersonate = accounts + ".namespace('team-a').name('x').check('impersonate').allowed()"
	account := authorizationv1.ResourceAttributes{
		Verb: "impersonate", Version: "*", Resource: "serviceaccounts", Namespace: "team-a", Name: "x",
	}
	token := account
	token.Verb, token.Subresource = "create", "token"
	selected := authorizationv1.ResourceAttributes{
		Verb: "list", Group: "apps", Version: "*", Resource: "deployments",
		FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{
			{Key: "metadata.name", Operator: metav1.FieldSelectorOpNotIn, Values: []string{"x"}},
		}},
		LabelSelector: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{
			{Key: "team", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}},
			{Key: "x", Operator: metav1.LabelSelectorOpExists},
		}},
	}
	wrong := []string{"spec: p/rule: is wrong"}
	for name, test := range map[string]struct {
		expression string
		answer     authorizationv1.SubjectAccessReviewStatus
		err        error
		want       *authorizationv1.SubjectAccessReviewSpec
		denied     []string
	}{
		"yes": {impersonate, authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil, resource(account), nil},
		"no":  {impersonate, authorizationv1.SubjectAccessReviewStatus{}, nil, resource(account), wrong},
		"yes and no": {
			impersonate, authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}, nil, resource(account), wrong,
		},
		"subresource": {
			accounts + ".subresource('token').namespace('team-a').name('x').check('create').allowed()",
			authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil, resource(token), nil,
		},
		"path": {
			"authorizer.path('/healthz').check('get').allowed()",
			authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil, &path, nil,
		},
		"selectors": {
			"authorizer.group('apps').resource('deployments').fieldSelector('metadata.name!=x')" +
				".labelSelector('team in (b, a), x').check('list').allowed()",
			authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil, resource(selected), nil,
		},
		// An error is an answer of the library, which the expression can ask for: it is not allowed.
		"an error": {
			impersonate + " || " + accounts + ".namespace('team-a').name('x')" +
				".check('impersonate').error() == 'asking for access: no'",
			authorizationv1.SubjectAccessReviewStatus{}, errors.New("no"), resource(account), nil,
		},
		"an answer that could not be found": {
			impersonate, authorizationv1.SubjectAccessReviewStatus{EvaluationError: "no role"}, nil, resource(account),
			wrong,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []authorizationv1.SubjectAccessReviewSpec
			in := creating(stageSet(t, ""))
			in.Request.UserInfo = authenticationv1.UserInfo{
				Username: "joe", UID: "7", Groups: []string{"devs"}, Extra: map[string]authenticationv1.ExtraValue{"scope": {"a", "b"}},
			}
			in.Authorizer = policies.NewAuthorizer(func(_ context.Context, review *authorizationv1.SubjectAccessReview) error {
				asked = append(asked, review.Spec)
				review.Status = test.answer
				return test.err
			})
			got := compile(t, rule(t, "p", test.expression, "")).Validate(t.Context(), in)
			if diff := cmp.Diff(test.denied, said(got.Denied)); diff != "" {
				t.Errorf("denied (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]authorizationv1.SubjectAccessReviewSpec{*test.want}, asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}

// TestChecksAreShared: a policy that asks too much takes no answer from another.
func TestChecksAreShared(t *testing.T) {
	const many = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14].all(a, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].all(b, " +
		"authorizer.path('/' + string(a * 10 + b)).check('get').allowed()))"
	in := creating(stageSet(t, ""))
	asked := 0
	in.Authorizer = policies.NewAuthorizer(func(_ context.Context, review *authorizationv1.SubjectAccessReview) error {
		asked++
		review.Status.Allowed = true
		return nil
	})
	set := compile(t, rule(t, "a", many, ""), rule(t, "b", "authorizer.path('/other').check('get').allowed()", ""))
	want := []string{"spec: a/rule: cannot be evaluated: was not evaluated: the request needs more than 128 authorizer " +
		"checks, and this policy more than its share"}
	if diff := cmp.Diff(want, said(set.Validate(t.Context(), in).Denied)); diff != "" {
		t.Errorf("denied (-want +got):\n%s", diff)
	}
	if asked != 129 {
		t.Errorf("%d checks were made, want 129", asked)
	}
}

// TestChecksThatOthersWereRefused: an answer that one policy did not get, because it asked too much, is no answer for another.
func TestChecksThatOthersWereRefused(t *testing.T) {
	const many = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14].all(a, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].all(b, " +
		"authorizer.path('/' + string(a * 10 + b)).check('get').allowed()))"
	in := creating(stageSet(t, ""))
	in.Authorizer = policies.NewAuthorizer(func(_ context.Context, review *authorizationv1.SubjectAccessReview) error {
		review.Status.Allowed = true
		return nil
	})
	set := compile(t, rule(t, "a", many, ""), rule(t, "b", "!authorizer.path('/128').check('get').allowed()", ""))
	denied := said(set.Validate(t.Context(), in).Denied)
	if len(denied) != 2 || denied[1] != "spec: b/rule: is wrong" {
		t.Errorf("denied: %q", denied)
	}
}

// TestChecksThatNobodyAnswers: an API server that does not answer has not said no, and leaves time for what does not ask it.
func TestChecksThatNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := creating(stageSet(t, ""))
		in.Authorizer = policies.NewAuthorizer(func(ctx context.Context, _ *authorizationv1.SubjectAccessReview) error {
			<-ctx.Done()
			return ctx.Err()
		})
		var list []v1alpha1.StageSetPolicy
		var want []string
		for i := range 8 {
			asks := fmt.Sprintf("!authorizer.path('/%d').check('get').allowed()", i)
			list = append(list, rule(t, fmt.Sprintf("p%d", i), asks, ""))
			want = append(want, fmt.Sprintf("spec: p%d/rule: cannot be evaluated: was not evaluated: the API server did not answer in "+
				"time what authorizer asked", i))
		}
		set, err := policies.Compile(t.Context(), append(list, rule(t, "z", "false", "")), policies.Options{Timeout: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, "spec: z/rule: is wrong")
		if diff := cmp.Diff(want, said(set.Validate(t.Context(), in).Denied)); diff != "" {
			t.Errorf("denied (-want +got):\n%s", diff)
		}
	})
}

// TestChecksThatAreForbidden: what the API server says about our own account is not for who writes a StageSet.
func TestChecksThatAreForbidden(t *testing.T) {
	in := creating(stageSet(t, ""))
	in.Authorizer = policies.NewAuthorizer(func(context.Context, *authorizationv1.SubjectAccessReview) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "subjectaccessreviews"}, "", errors.New("joe cannot create it"))
	})
	asks := rule(t, "p", "authorizer.path('/').check('get').allowed()", "")
	asks.Spec.Validations[0].MessageExpression = "authorizer.path('/').check('get').error()"
	got := said(compile(t, asks).Validate(t.Context(), in).Denied)
	if text := strings.Join(got, "\n"); !strings.Contains(text, "this installation may not") || strings.Contains(text, "joe") {
		t.Errorf("denied: %s", text)
	}
}

// TestNoAuthorizer: where there is nobody to ask, the policy is decided by its failurePolicy, and says why.
func TestNoAuthorizer(t *testing.T) {
	set := compile(t, rule(t, "p", "authorizer.path('/').check('get').allowed()", ""))
	want := []string{"spec: p/rule: cannot be evaluated: reads authorizer, but there is no authorizer to ask here"}
	if diff := cmp.Diff(want, said(set.Validate(t.Context(), creating(stageSet(t, ""))).Denied)); diff != "" {
		t.Errorf("denied (-want +got):\n%s", diff)
	}
}

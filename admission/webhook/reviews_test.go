package webhook

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// A yes is believed for ten seconds, about exactly what was asked, and nothing else is believed at all.
func TestRemember(t *testing.T) {
	yes := authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "RBAC"}
	for name, test := range map[string]struct {
		status  authorizationv1.SubjectAccessReviewStatus
		err     error
		passed  time.Duration // between the first time and the second
		another func(*authorizationv1.SubjectAccessReviewSpec)
		asked   int
	}{
		"yes":         {status: yes, asked: 1},
		"yes, so far": {status: yes, passed: 10 * time.Second, asked: 1},
		"an old yes":  {status: yes, passed: 10*time.Second + 1, asked: 2},
		"no":          {asked: 2},
		"yes and no":  {status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}, asked: 2},
		"no answer":   {status: yes, err: errors.New("timeout"), asked: 2},
		"another name": {status: yes, asked: 2, another: func(s *authorizationv1.SubjectAccessReviewSpec) {
			s.User = "jane"
		}},
		"another group": {status: yes, asked: 2, another: func(s *authorizationv1.SubjectAccessReviewSpec) {
			s.Groups = []string{"devs"}
		}},
		"fewer scopes": {status: yes, asked: 2, another: func(s *authorizationv1.SubjectAccessReviewSpec) {
			s.Extra = map[string]authorizationv1.ExtraValue{"scope": {"a"}}
		}},
		"another account": {status: yes, asked: 2, another: func(s *authorizationv1.SubjectAccessReviewSpec) {
			s.ResourceAttributes.Name = "admin"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
			review := Remember(func(_ context.Context, review *authorizationv1.SubjectAccessReview) error {
				asked++
				review.Status = test.status
				return test.err
			}, clock)
			for second, change := range []func(*authorizationv1.SubjectAccessReviewSpec){nil, test.another} {
				question := newQuestion()
				if change != nil {
					change(&question.Spec)
				}
				clock.SetTime(time.Unix(0, 0).Add(time.Duration(second) * test.passed))
				if err := review(t.Context(), question); !errors.Is(err, test.err) {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.status, question.Status); diff != "" {
					t.Errorf("status (-want +got):\n%s", diff)
				}
			}
			if asked != test.asked {
				t.Errorf("asked %d times, want %d", asked, test.asked)
			}
		})
	}
}

func newQuestion() *authorizationv1.SubjectAccessReview {
	return &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "joe", UID: "7", Groups: []string{"devs", "admins"},
		Extra: map[string]authorizationv1.ExtraValue{"scope": {"a", "b"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "impersonate", Resource: "serviceaccounts", Namespace: "team-a", Name: "deployer",
		},
	}}
}

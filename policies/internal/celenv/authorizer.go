package celenv

import (
	"context"
	"errors"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	admissionauthorizer "k8s.io/apiserver/pkg/admission/plugin/authorizer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/library"
)

// Authorizer answers the checks of the variable authorizer.
type Authorizer = authorizer.UnconditionalAuthorizer

// MaxChecks is how many different checks one request may need. Each may be a request to the API server, which no cost unit
// stands for, so they are counted apart; a check that was made before in the same request is not made again.
const MaxChecks = 128

var errTooManyChecks = errors.New("too many checks")

// checker answers the checks of one request.
type checker struct {
	// ctx is the request's: the CEL library calls authorizers without one.
	ctx      context.Context
	next     Authorizer
	asked    int
	exceeded bool
}

func newChecker(ctx context.Context, next Authorizer) *checker {
	return &checker{ctx: ctx, next: next}
}

// bind is the value of authorizer and of authorizer.requestResource.
func (c *checker) bind(request *admissionv1.AdmissionRequest) (any, any) {
	info := request.UserInfo
	requester := &user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups, Extra: map[string][]string{}}
	for key, values := range info.Extra {
		requester.Extra[key] = values
	}
	cached := admissionauthorizer.NewCachingAuthorizer(c)
	return library.NewAuthorizerVal(requester, cached), library.NewResourceAuthorizerVal(requester, cached, resource{request})
}

// Authorize implements Authorizer.
func (c *checker) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if c.asked >= MaxChecks {
		c.exceeded = true
		return authorizer.DecisionNoOpinion, "", errTooManyChecks
	}
	c.asked++
	return c.next.Authorize(c.ctx, a)
}

// resource is the object of a request.
type resource struct {
	request *admissionv1.AdmissionRequest
}

// GetName implements library.Resource.
func (r resource) GetName() string { return r.request.Name }

// GetNamespace implements library.Resource.
func (r resource) GetNamespace() string { return r.request.Namespace }

// GetResource implements library.Resource.
func (r resource) GetResource() schema.GroupVersionResource {
	named := r.request.Resource
	return schema.GroupVersionResource{Group: named.Group, Version: named.Version, Resource: named.Resource}
}

// GetSubresource implements library.Resource.
func (r resource) GetSubresource() string { return r.request.SubResource }

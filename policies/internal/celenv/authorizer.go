package celenv

import (
	"context"
	"errors"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	admissionauthorizer "k8s.io/apiserver/pkg/admission/plugin/authorizer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/library"
)

// Authorizer answers the checks of the variable authorizer.
type Authorizer = authorizer.UnconditionalAuthorizer

// Check is what an Authorizer is asked: whether User may.
type Check struct {
	User authenticationv1.UserInfo
	Verb string
	// Path is set for what is not a resource, and nothing below it then.
	Path string

	Group, Version, Resource, Subresource, Namespace, Name string
	// Fields and Labels narrow what is asked for; none if they cannot be told, which asks for more.
	Fields []metav1.FieldSelectorRequirement
	Labels []metav1.LabelSelectorRequirement
}

// AuthorizerFunc is an Authorizer that answers whether something is allowed, and why.
type AuthorizerFunc func(ctx context.Context, asked Check) (allowed bool, reason string, err error)

// Authorize implements Authorizer.
func (f AuthorizerFunc) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	allowed, reason, err := f(ctx, newCheck(a))
	if err != nil || !allowed {
		return authorizer.DecisionNoOpinion, reason, err
	}
	return authorizer.DecisionAllow, reason, nil
}

func newCheck(a authorizer.Attributes) Check {
	asked := Check{Verb: a.GetVerb()}
	if u := a.GetUser(); u != nil {
		asked.User = authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
		for key, values := range u.GetExtra() {
			if asked.User.Extra == nil {
				asked.User.Extra = map[string]authenticationv1.ExtraValue{}
			}
			asked.User.Extra[key] = values
		}
	}
	if !a.IsResourceRequest() {
		asked.Path = a.GetPath()
		return asked
	}
	asked.Group, asked.Version, asked.Resource = a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource()
	asked.Subresource, asked.Namespace, asked.Name = a.GetSubresource(), a.GetNamespace(), a.GetName()
	if requirements, err := a.GetFieldSelector(); err == nil {
		asked.Fields = fieldRequirements(requirements)
	}
	if requirements, err := a.GetLabelSelector(); err == nil {
		asked.Labels = labelRequirements(requirements)
	}
	return asked
}

func fieldRequirements(requirements fields.Requirements) []metav1.FieldSelectorRequirement {
	var all []metav1.FieldSelectorRequirement
	for _, r := range requirements {
		operator := metav1.FieldSelectorOpIn
		if r.Operator == selection.NotEquals {
			operator = metav1.FieldSelectorOpNotIn
		}
		all = append(all, metav1.FieldSelectorRequirement{Key: r.Field, Operator: operator, Values: []string{r.Value}})
	}
	return all
}

func labelRequirements(requirements labels.Requirements) []metav1.LabelSelectorRequirement {
	operators := map[selection.Operator]metav1.LabelSelectorOperator{
		selection.Equals: metav1.LabelSelectorOpIn, selection.DoubleEquals: metav1.LabelSelectorOpIn,
		selection.In: metav1.LabelSelectorOpIn, selection.NotEquals: metav1.LabelSelectorOpNotIn,
		selection.NotIn: metav1.LabelSelectorOpNotIn, selection.Exists: metav1.LabelSelectorOpExists,
		selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
	}
	var all []metav1.LabelSelectorRequirement
	for _, r := range requirements {
		// What a review cannot say is left out, which asks for more.
		if operator, ok := operators[r.Operator()]; ok {
			values := slices.Sorted(slices.Values(r.ValuesUnsorted()))
			all = append(all, metav1.LabelSelectorRequirement{Key: r.Key(), Operator: operator, Values: values})
		}
	}
	return all
}

// MaxChecks is how many different checks one request may need. Each may be a request to the API server, which no cost unit
// stands for, so they are counted apart; a check that was made before in the same request is not made again. They are
// divided fairly: a group that has not made more than its share may go on when others have used up the limit.
const MaxChecks = 128

// What was not asked is no answer: an expression that needs it cannot be evaluated. Any other error is one, which the
// expression can ask for: it is not allowed.
var (
	errTooManyChecks = errors.New("too many checks")
	errNoAnswer      = errors.New("no answer in time")
)

// checker answers the checks of one request.
type checker struct {
	// ctx is the request's: the CEL library calls authorizers without one.
	ctx   context.Context
	next  Authorizer
	known Authorizer
	asked int
	// patience is how long one check may take; zero is as long as the request. After one that took longer none is made.
	patience time.Duration
	silent   bool
	// failed is why the expression that is evaluated got no answer; nil if it did.
	failed *EvalError
	// share is what a group may ask in any case; asking is what the group has used that is asking.
	share  int
	asking *account
}

func newChecker(ctx context.Context, values Values, groups int) *checker {
	c := &checker{
		ctx: ctx, next: values.Authorizer, patience: values.Patience, share: max(MaxChecks/groups, 1), asking: &account{},
	}
	c.known = admissionauthorizer.NewCachingAuthorizer(asker{c})
	return c
}

// bind is the value of authorizer and of authorizer.requestResource.
func (c *checker) bind(request *admissionv1.AdmissionRequest) (any, any) {
	info := request.UserInfo
	requester := &user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups, Extra: map[string][]string{}}
	for key, values := range info.Extra {
		requester.Extra[key] = values
	}
	return library.NewAuthorizerVal(requester, c), library.NewResourceAuthorizerVal(requester, c, resource{request})
}

// Authorize implements Authorizer.
func (c *checker) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := c.known.Authorize(ctx, a)
	if errors.Is(err, errTooManyChecks) {
		// Errors are kept, too: this one may be that of a group that has asked too much, and not of the one that asks.
		decision, reason, err = asker{c}.Authorize(ctx, a)
	}
	switch {
	case errors.Is(err, errTooManyChecks):
		c.failed = errChecks
	case errors.Is(err, errNoAnswer):
		c.failed = errSilent
	}
	return decision, reason, err
}

// asker asks and counts.
type asker struct {
	*checker
}

// Authorize implements Authorizer.
func (c asker) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if c.asked >= MaxChecks && c.asking.checks >= c.share {
		return authorizer.DecisionNoOpinion, "", errTooManyChecks
	}
	if c.silent {
		return authorizer.DecisionNoOpinion, "", errNoAnswer
	}
	c.asked++
	c.asking.checks++
	ctx := c.ctx
	if c.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.patience)
		defer cancel()
	}
	decision, reason, err := c.next.Authorize(ctx, a)
	if err != nil && ctx.Err() != nil {
		c.silent = true
		return authorizer.DecisionNoOpinion, "", errNoAnswer
	}
	return decision, reason, err
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

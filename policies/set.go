package policies

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies/internal/celenv"
	"github.com/stageset/stageset/policies/internal/schema"
)

// DefaultTimeout bounds one Default or Validate: half of what the webhook configurations grant.
const DefaultTimeout = 2500 * time.Millisecond

// policyTimeShare is which part of the timeout a policy gets, so that one slow policy leaves time for the others.
const policyTimeShare = 4

// AllNamespaces among Options.PlatformNamespaces stands for every namespace: a cluster with a single tenant.
const AllNamespaces = "*"

// Options are what a Set knows besides its policies.
type Options struct {
	// PlatformNamespaces are the namespaces that are not tenants', by name: the variable tenant is false there.
	PlatformNamespaces []string
	// Params is the value of the variable params, by the name of the policy; for all others it is null.
	Params map[string]map[string]any
	// Timeout bounds one Default or Validate; zero is DefaultTimeout.
	Timeout time.Duration
}

// Set is a compiled set of policies. It is immutable and safe for concurrent use.
type Set struct {
	policies []*policy
	platform map[string]bool
	timeout  time.Duration
}

// Compile compiles policies. A policy that does not compile is decided by its failurePolicy, and stops no other: the error is
// then Problems, with everything that is wrong, and there is a Set nevertheless. With any other error, as when the context
// ended, there is none. Text is compiled as stored text, which may use whatever any version knew; Check is for text that is
// about to be stored.
func Compile(ctx context.Context, list []v1alpha1.StageSetPolicy, options Options) (*Set, error) {
	env, err := celenv.NewCompiler(celenv.Stored)
	if err != nil {
		return nil, err
	}
	set := &Set{platform: map[string]bool{}, timeout: options.Timeout}
	if set.timeout <= 0 {
		set.timeout = DefaultTimeout
	}
	for _, namespace := range options.PlatformNamespaces {
		set.platform[namespace] = true
	}
	var problems Problems
	for i := range list {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("compiling policies: %w", err)
		}
		compiled, found := compilePolicy(env, &list[i])
		compiled.params = options.Params[compiled.name]
		set.policies = append(set.policies, compiled)
		problems = append(problems, found...)
	}
	slices.SortStableFunc(set.policies, func(a, b *policy) int { return strings.Compare(a.name, b.name) })
	return set, problems.orNil()
}

// Check finds what is wrong with policies that are about to be stored: whatever Compile finds, text that the previous minor
// version of Kubernetes does not know, and fields that a StageSet does not have. The error is Problems. It needs no cluster.
func Check(ctx context.Context, list []v1alpha1.StageSetPolicy) error {
	untyped, err := celenv.NewCompiler(celenv.New)
	if err != nil {
		return err
	}
	schemas, err := schema.Schemas()
	if err != nil {
		return err
	}
	typed, err := celenv.NewTypedCompiler(celenv.New, schemas, schema.StageSet)
	if err != nil {
		return err
	}
	var problems Problems
	for i := range list {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("checking policies: %w", err)
		}
		// Both, because some text is wrong for either alone: a rule that is just a field of the object has the type bool for
		// the typed compiler, and an unknown one for that which is evaluated.
		_, found := compilePolicy(untyped, &list[i])
		_, more := compilePolicy(typed, &list[i])
		for _, problem := range more {
			if !slices.Contains(found, problem) {
				found = append(found, problem)
			}
		}
		problems = append(problems, found...)
	}
	return problems.orNil()
}

// tenant is the value of the variable tenant. A namespace that is not known is a tenant's.
func (s *Set) tenant(namespace string) bool {
	return !s.platform[AllNamespaces] && !s.platform[namespace]
}

// values are what the expressions of all policies see alike.
func (s *Set) values(q question) celenv.Values {
	return celenv.Values{
		Request:    q.request,
		Namespace:  q.Namespace,
		Authorizer: q.Authorizer,
		Tenant:     s.tenant(q.namespace),
	}
}

// candidates are the policies that use wants, and whose operations and excluded namespaces let q in.
func (s *Set) candidates(q question, wants func(*policy) bool) []*policy {
	var found []*policy
	for _, p := range s.policies {
		if wants(p) && p.match.reaches(q) && !(q.stored && p.admissionOnly) {
			found = append(found, p)
		}
	}
	return found
}

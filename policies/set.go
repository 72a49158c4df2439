package policies

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies/internal/celenv"
)

// DefaultTimeout bounds one Default or Validate: half of what the webhook configurations grant.
const DefaultTimeout = 2500 * time.Millisecond

// policyTimeShare is which part of the timeout a policy gets at most, so that one slow policy leaves time for the others. How
// several slow ones do is in shares.
const policyTimeShare = 4

// AllNamespaces among Options.PlatformNamespaces stands for every namespace: a cluster with a single tenant.
const AllNamespaces = "*"

// Options are what a Set knows besides its policies.
type Options struct {
	// PlatformNamespaces are the namespaces that are not tenants', by name: the variable tenant is false there.
	PlatformNamespaces []string
	// TrustNamespaceKeys has the variable tenant also be false in namespaces whose Namespace says so, with the label
	// stages.metio.wtf/tenancy.
	TrustNamespaceKeys bool
	// Params is the value of the variable params, by the name of the policy, whatever its paramRef says.
	Params map[string]map[string]any
	// Lookup finds the parameters of all other policies. When nil, a policy with a paramRef cannot be evaluated.
	Lookup ParamLookup
	// ParamResources are the kinds that can be parameters; nil is DefaultParamResources.
	ParamResources []v1alpha1.ParamKind
	// Timeout bounds one Default or one Validate; zero is DefaultTimeout.
	Timeout time.Duration
	// BuiltIn tells that the policies are built in, and not stored.
	BuiltIn bool
}

// Set is a compiled set of policies. It is immutable and safe for concurrent use.
type Set struct {
	// policies are sorted by name; byTarget are the same.
	policies []*policy
	byTarget map[v1alpha1.Target][]*policy
	// builtIn are the names of those that are built in.
	builtIn  map[string]bool
	platform map[string]bool
	// trusting tells that a Namespace can say that it is no tenant's.
	trusting bool
	lookup   ParamLookup
	allowed  []v1alpha1.ParamKind
	timeout  time.Duration
	// observer is nil if there is none.
	observer Observer
	// decided counts decisions, to measure some of them.
	decided *atomic.Uint64
}

// Compile compiles policies. A policy that does not compile is decided by its failurePolicy, and stops no other: the error is
// then Problems, with everything that is wrong, and there is a Set nevertheless. With any other error, as when the context
// ended, there is none. Text is compiled as stored text, which may use whatever any version knew; Check is for text that is
// about to be stored.
func Compile(ctx context.Context, list []v1alpha1.StageSetPolicy, options Options) (*Set, error) {
	set := &Set{
		platform: map[string]bool{}, trusting: options.TrustNamespaceKeys,
		lookup: options.Lookup, allowed: options.ParamResources, timeout: options.Timeout,
	}
	if set.timeout <= 0 {
		set.timeout = DefaultTimeout
	}
	for _, namespace := range options.PlatformNamespaces {
		set.platform[namespace] = true
	}
	compiled, err := set.compile(ctx, list, nil)
	if err != nil {
		return nil, err
	}
	for _, p := range compiled {
		p.builtIn = options.BuiltIn
		p.params.fixed = options.Params[p.name]
	}
	set.index(compiled)
	return set, set.problems(options.BuiltIn).orNil()
}

// With is s with list in place of the policies that are not built in, and with lookup for parameters. What s has compiled of
// list, it does not compile again. The error is as for Compile, but only about list: there is a Set nevertheless.
//
// A policy with the name of a built-in one is evaluated like all others, and so is the built-in one: neither an upgrade that
// brings a rule nor who may write policies takes the other's rules away. That both have one name is a problem of the stored.
func (s *Set) With(ctx context.Context, list []v1alpha1.StageSetPolicy, lookup ParamLookup) (*Set, error) {
	set := &Set{
		platform: s.platform, trusting: s.trusting,
		lookup: lookup, allowed: s.allowed, timeout: s.timeout, observer: s.observer,
	}
	var builtIn, before []*policy
	for _, p := range s.policies {
		if p.builtIn {
			builtIn = append(builtIn, p)
		} else {
			before = append(before, p)
		}
	}
	compiled, err := set.compile(ctx, list, before)
	if err != nil {
		return nil, err
	}
	set.index(slices.Concat(builtIn, compiled))
	return set, set.problems(false).orNil()
}

func nameTaken(name string) Problem {
	return Problem{Policy: name, Field: "metadata.name", Message: "is the name of a built-in policy: choose another"}
}

// compile compiles list, but for those that are among known in the same generation.
func (s *Set) compile(ctx context.Context, list []v1alpha1.StageSetPolicy, known []*policy) ([]*policy, error) {
	all, err := newEnvironments(func(subject celenv.Subject) (*celenv.Compiler, error) {
		return celenv.NewCompiler(celenv.Stored, subject)
	})
	if err != nil {
		return nil, err
	}
	byUID := map[types.UID]*policy{}
	for _, p := range known {
		byUID[p.uid] = p
	}
	compiled := make([]*policy, 0, len(list))
	for i := range list {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("compiling policies: %w", err)
		}
		if p := byUID[list[i].UID]; p != nil && p.uid != "" && p.generation == list[i].Generation {
			compiled = append(compiled, p)
			continue
		}
		compiled = append(compiled, compilePolicy(all, &list[i], s.allowed))
	}
	return compiled, nil
}

// index makes compiled the policies of s.
func (s *Set) index(compiled []*policy) {
	slices.SortStableFunc(compiled, func(a, b *policy) int { return strings.Compare(a.name, b.name) })
	s.policies, s.byTarget, s.builtIn = compiled, map[v1alpha1.Target][]*policy{}, map[string]bool{}
	s.decided = new(atomic.Uint64)
	for _, p := range compiled {
		if p.builtIn {
			s.builtIn[p.name] = true
		}
		s.byTarget[p.target] = append(s.byTarget[p.target], p)
	}
}

// problems are what is wrong with the policies that are built in, or with the others.
func (s *Set) problems(builtIn bool) Problems {
	var all Problems
	for _, p := range s.policies {
		if p.builtIn == builtIn {
			all = append(all, s.problemsOf(p)...)
		}
	}
	return all
}

// problemsOf are what is wrong with p among the others.
func (s *Set) problemsOf(p *policy) Problems {
	if s.builtIn[p.name] && !p.builtIn {
		return slices.Concat(p.problems, Problems{nameTaken(p.name)})
	}
	return p.problems
}

// tenant is the value of the variable tenant. A namespace that is not known is a tenant's.
func (s *Set) tenant(q question) bool {
	if s.platform[AllNamespaces] || s.platform[q.namespace] {
		return false
	}
	says := s.trusting && q.Namespace != nil && q.Namespace.Labels[v1.LabelTenancy] == v1.TenancyPlatform
	return !says
}

// values are what the expressions of all policies see alike.
func (s *Set) values(q question) celenv.Values {
	return celenv.Values{
		Request:    q.request,
		Namespace:  q.Namespace,
		Authorizer: q.Authorizer,
		Patience:   s.timeout / policyTimeShare,
		Tenant:     s.tenant(q),
		Release:    q.release,
	}
}

// candidates are the policies that use wants, and whose operations and excluded namespaces let q in.
func (s *Set) candidates(q question, wants func(*policy) bool) []*policy {
	var found []*policy
	for _, p := range s.byTarget[q.target] {
		if wants(p) && p.match.reaches(q) && !(q.stored && p.admissionOnly) {
			found = append(found, p)
		}
	}
	return found
}

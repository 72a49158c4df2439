package celenv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/lazy"
)

// RequestCostLimit bounds the evaluation of everything that is asked in one request, in the cost units of CEL. It is divided
// fairly: a group that has not used more than its share goes on when others have used up the limit. What is not charged,
// because it cannot cost much, may cost as much again in all.
const RequestCostLimit = 2_000_000

// Values are what the variables stand for that are the same for all expressions of a request.
type Values struct {
	// Request is the variable request; it is nil only where the subject has no such variable. Object, oldObject and uid are not
	// part of it.
	Request *admissionv1.AdmissionRequest
	// Namespace is namespaceObject; when nil, reading it is an error.
	Namespace *corev1.Namespace
	// Authorizer answers the checks of authorizer; when nil, reading it is an error.
	Authorizer Authorizer
	// Patience is how long one answer of Authorizer may take; zero is as long as the request. After one that took longer, it is
	// not asked again.
	Patience time.Duration
	// Tenant is tenant.
	Tenant bool
	// Measured has the cost of every expression counted, also where it is not charged because it cannot come near a limit.
	Measured bool
	// Release are stageSet, stage, source and target, as far as the subject has them.
	Release map[string]any
}

// SourceVariables are the fields of the variable source.
type SourceVariables struct {
	APIVersion, Kind, Namespace, Name, URL, Revision, Digest string
	Verified                                                 bool
}

// TargetVariables are the fields of the variable target.
type TargetVariables struct {
	Remote                     bool
	Server, ServiceAccountName string
}

// Release are the variables of Source and Manifest: the fields of the StageSet and of its stage, the source, and the target,
// which is nil for Source.
func Release(stageSet, stage map[string]any, source SourceVariables, target *TargetVariables) map[string]any {
	variables := map[string]any{
		varStageSet: stageSet,
		varStage:    stage,
		varSource: map[string]any{
			"apiVersion": source.APIVersion, "kind": source.Kind, "namespace": source.Namespace, "name": source.Name,
			"url": source.URL, "revision": source.Revision, "digest": source.Digest, "verified": source.Verified,
		},
	}
	if target != nil {
		variables[varTarget] = map[string]any{
			"remote": target.Remote, "server": target.Server, "serviceAccountName": target.ServiceAccountName,
		}
	}
	return variables
}

// Evaluation is the evaluation of expressions for one request: what they have in common and what they have cost. It is for
// one goroutine.
type Evaluation struct {
	operation       admissionv1.Operation
	request         ref.Val
	namespace       ref.Val
	authorizer      any
	requestResource any
	tenant          bool
	release         map[string]any
	documents       documents

	checks *checker
	groups uint64
	spent  uint64
	// free is what may have been spent besides that is not charged; uncharged is what of it was measured, which is all of it if
	// measured is set.
	free, uncharged uint64
	measured        bool
}

// NewEvaluation is an evaluation for groups groups of expressions.
func NewEvaluation(ctx context.Context, values Values, groups int) *Evaluation {
	e := &Evaluation{
		request:   types.NullValue,
		namespace: types.NullValue,
		tenant:    values.Tenant,
		release:   values.Release,
		measured:  values.Measured,
		groups:    uint64(max(groups, 1)),
	}
	if values.Request != nil {
		e.operation, e.request = values.Request.Operation, requestValue(values.Request)
	}
	if values.Namespace != nil {
		e.namespace = common.SchemalessTypedToVal(plugincel.CreateNamespaceObject(values.Namespace))
	}
	if values.Authorizer != nil && values.Request != nil {
		e.checks = newChecker(ctx, values, max(groups, 1))
		e.authorizer, e.requestResource = e.checks.bind(values.Request)
	}
	return e
}

// Spent is what all groups have spent so far, in cost units, as far as it was counted.
func (e *Evaluation) Spent() uint64 { return e.spent + e.uncharged }

// requestValue is the request as a ValidatingAdmissionPolicy sees it.
func requestValue(request *admissionv1.AdmissionRequest) ref.Val {
	seen := *request
	seen.UID = ""
	seen.Object.Raw, seen.Object.Object = nil, nil
	seen.OldObject.Raw, seen.OldObject.Object = nil, nil
	return common.SchemalessTypedToVal(&seen)
}

// account is what a group has used.
type account struct {
	spent  uint64
	checks int
}

// Group is expressions that belong together: they share variables, parameters and a part of the budget.
type Group struct {
	evaluation *Evaluation
	variables  *Variables
	params     *document
	used       *account
}

// Group is a new group. A nil params is null.
func (e *Evaluation) Group(variables *Variables, params map[string]any) *Group {
	g := &Group{evaluation: e, variables: variables, used: &account{}}
	return g.With(params)
}

// With is g with other parameters. Both use the same part of the budget.
func (g *Group) With(params map[string]any) *Group {
	other := *g
	other.params = none
	if params != nil {
		other.params = &document{fields: params, value: newDocument(params)}
	}
	return &other
}

// Scope is what the expressions of a group see for one pair of objects. Variables are evaluated once in it.
type Scope struct {
	*Group
	// ctx is kept because CEL asks for the value of a variable without one.
	ctx               context.Context
	object, oldObject *document
	lazyVariables     ref.Val
	// ruleSpent is what one expression and the variables that it reads have been charged, and ruleFree what they may have spent
	// besides.
	ruleSpent, ruleFree uint64
}

// Scope is the scope for object and oldObject, each of which may be nil: it is null then. Neither is changed as long as
// anything is evaluated: all scopes of the evaluation share what they read of it. The context ends evaluation.
func (g *Group) Scope(ctx context.Context, object, oldObject map[string]any) *Scope {
	seen := &g.evaluation.documents
	return &Scope{Group: g, ctx: ctx, object: seen.of(object), oldObject: seen.of(oldObject)}
}

// ResolveName implements cel.Activation.
func (s *Scope) ResolveName(name string) (any, bool) {
	switch name {
	case varObject:
		return s.object.value, true
	case varOldObject:
		return s.oldObject.value, true
	case varParams:
		return s.params.value, true
	case varRequest:
		return s.evaluation.request, true
	case varNamespace:
		return s.evaluation.namespace, true
	case varAuthorizer:
		return s.evaluation.authorizer, s.evaluation.authorizer != nil
	case varRequestResource:
		return s.evaluation.requestResource, s.evaluation.requestResource != nil
	case varTenant:
		return s.evaluation.tenant, true
	case varVariables:
		return s.variableMap(), true
	case varMetadata, varSpec, varStatus:
		return s.field(name), true
	default:
		value, ok := s.evaluation.release[name]
		return value, ok
	}
}

// field is a field of the object; one that it does not have is empty, so that has() can be asked about what is in it.
func (s *Scope) field(name string) any {
	if value, found := s.object.fields[name]; found {
		return value
	}
	return map[string]any{}
}

// Parent implements cel.Activation.
func (*Scope) Parent() cel.Activation { return nil }

// variableMap is the value of the variable variables: a map whose values are evaluated when they are first read.
func (s *Scope) variableMap() ref.Val {
	if s.lazyVariables != nil {
		return s.lazyVariables
	}
	values := lazy.NewMapValue(variablesType)
	if s.variables != nil {
		for _, name := range s.variables.names {
			values.Append(name, func(*lazy.MapValue) ref.Val { return s.variables.evaluate(s, name) })
		}
	}
	s.lazyVariables = values
	return values
}

// Expression is a compiled expression. It is immutable and safe for concurrent use.
type Expression struct {
	text    string
	program cel.Program
	tree    *ast.AST
	output  *cel.Type
	// result is what is known of it, if the objects are small.
	result part
	// unmetered is nil if it may cost much, and bound is what it costs at most otherwise.
	unmetered cel.Program
	bound     uint64
}

// evaluate runs x as an expression of its own, within the budgets. It is what the exported evaluators of results call.
func (s *Scope) evaluate(x *Expression) (ref.Val, error) {
	s.ruleSpent, s.ruleFree = 0, 0
	if s.evaluation.checks != nil {
		s.evaluation.checks.failed = nil
		s.evaluation.checks.asking = s.used
	}
	value, err := s.run(x)
	if err != nil {
		return nil, err
	}
	return value, nil
}

// run runs x, and charges it to the expression that is being evaluated, which x is or which reads x as a variable.
func (s *Scope) run(x *Expression) (value ref.Val, failure *EvalError) {
	defer func() {
		// cel-go recovers from panics of its own; this is for values that panic when they are looked at.
		if recovered := recover(); recovered != nil {
			failure = &EvalError{Message: fmt.Sprintf("panicked: %v", recovered)}
		}
	}()
	if err := s.exhausted(); err != nil {
		return nil, err
	}
	value, err := s.eval(x)
	if checks := s.evaluation.checks; checks != nil && checks.failed != nil {
		return nil, checks.failed
	}
	if err != nil {
		return nil, s.explain(x, err)
	}
	if s.ruleSpent > RuleCostLimit {
		return nil, errRuleCost
	}
	return value, nil
}

// eval evaluates x. What is not charged is the same whether it is measured or not, so that no verdict depends on that.
func (s *Scope) eval(x *Expression) (ref.Val, error) {
	free := s.isFree(x)
	if free {
		s.ruleFree += x.bound
		s.evaluation.free += x.bound
		if !s.evaluation.measured {
			value, _, err := x.unmetered.Eval(s)
			return value, err
		}
	}
	value, details, err := x.program.ContextEval(s.ctx, s)
	if free {
		s.evaluation.uncharged += costOf(details)
	} else {
		s.charge(costOf(details))
	}
	return value, err
}

// isFree tells whether x is not charged: it costs little on what it sees, and so did all before it that was not charged.
func (s *Scope) isFree(x *Expression) bool {
	return x.unmetered != nil && s.ruleFree+x.bound <= RuleCostLimit && s.evaluation.free+x.bound <= RequestCostLimit &&
		s.object.isSmall() && s.oldObject.isSmall() && s.params.isSmall()
}

// exhausted is the reason why nothing more may be evaluated in s.
func (s *Scope) exhausted() *EvalError {
	if s.ctx.Err() != nil {
		return errDeadline
	}
	if s.ruleSpent > RuleCostLimit {
		return errRuleCost
	}
	if share := RequestCostLimit / s.evaluation.groups; s.evaluation.spent > RequestCostLimit && s.used.spent > share {
		return errRequestCost
	}
	return nil
}

// costOf is what an evaluation cost. One that was broken off does not say.
func costOf(details *cel.EvalDetails) uint64 {
	if actual := details.ActualCost(); actual != nil {
		return min(*actual, RuleCostLimit+1)
	}
	return RuleCostLimit
}

func (s *Scope) charge(cost uint64) {
	s.ruleSpent += cost
	s.used.spent += cost
	s.evaluation.spent += cost
}

// cancelled tells which limit ended an evaluation, if one did.
func cancelled(err error) *EvalError {
	var stopped interpreter.EvalCancelledError
	switch {
	case errors.As(err, &stopped) && stopped.Cause == interpreter.CostLimitExceeded:
		return errRuleCost
	case errors.Is(err, interpreter.InterruptError{}):
		return errDeadline
	default:
		return nil
	}
}

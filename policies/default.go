package policies

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies/internal/celenv"
)

// maxPatchGrowth bounds, in bytes, what the copy operations of a JSON Patch may add to a StageSet.
const maxPatchGrowth = 1 << 20

// Default is in.Object after the mutations of all policies filled in what was unset, or overrode what was set, with the
// annotation stages.metio.wtf/defaulted-by that says which policy set what: in.Object itself if that changes nothing, and
// otherwise another object. A policy sees what those before it, by name, filled in. Doing it twice is the same as doing it
// once. Of an update that leaves the spec alone only labels and annotations are defaulted: who adds a label does not change
// what runs. Default is nil without an object.
//
// The object is usable also when the error is not nil, which is a DefaultError then: the policies that could not be evaluated
// have set nothing, all others have.
func (s *Set) Default(ctx context.Context, in Input) (*unstructured.Unstructured, error) {
	if in.Object == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	q := newQuestion(in)
	claims := parseClaims(in.Object)
	if q.specUnchanged {
		maps.Copy(claims, parseClaims(in.OldObject)) // whoever set what is in the spec has set it still
	}
	if len(claims) == 0 && !s.Defaults() {
		return in.Object, nil
	}
	d := s.defaulter(ctx, q)
	result, filled, failed := d.run(ctx, in.Object)
	maps.Copy(filled, d.verify(ctx, result, claims, filled))
	return annotate(result, filled), failed.orNil()
}

// DefaultError is what of the mutations could not be evaluated, of policies that do not ignore that (failurePolicy), one for
// each policy. The rule of such a violation is a match condition, or mutations[i].
type DefaultError []Violation

// Error has a line for each violation.
func (e DefaultError) Error() string {
	lines := make([]string, 0, len(e))
	for _, violation := range e {
		lines = append(lines, violation.String())
	}
	return strings.Join(lines, "\n")
}

func (e DefaultError) orNil() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// Defaults tells whether any policy may set anything: without, Default only looks after what the annotation
// stages.metio.wtf/defaulted-by says.
func (s *Set) Defaults() bool {
	return slices.ContainsFunc(s.byTarget[v1alpha1.TargetStageSet], func(p *policy) bool { return len(p.mutations) > 0 })
}

// defaulter applies the mutations of policies to versions of one object.
type defaulter struct {
	question
	policies   []*policy
	evaluation *celenv.Evaluation
	lookup     ParamLookup
	// timeout bounds one policy.
	timeout time.Duration
	// proving has a mutation that fails left out, and not its policy as a whole.
	proving  bool
	observer Observer
}

// defaulter is what defaults the object of q.
func (s *Set) defaulter(ctx context.Context, q question) *defaulter {
	candidates := s.candidates(q, func(p *policy) bool { return len(p.mutations) > 0 })
	return &defaulter{
		question: q,
		policies: candidates,
		// Claims are verified by defaulting up to twice more, which costs the same each time.
		evaluation: celenv.NewEvaluation(ctx, s.values(q), 3*len(candidates)),
		lookup:     s.patientLookup(),
		timeout:    s.timeout / policyTimeShare,
		observer:   s.watcher(),
	}
}

// run is object with what all policies fill in, and which policy filled in which field.
func (d *defaulter) run(ctx context.Context, object *unstructured.Unstructured) (
	*unstructured.Unstructured, claimSet, DefaultError,
) {
	current, filled := object, claimSet{}
	var failures DefaultError
	for _, p := range d.policies {
		next, added, failed := d.apply(ctx, p, current)
		if failed != nil {
			if !d.proving {
				d.observer.Failed(p.name, failed.kind(p))
			}
			if !p.ignoresFailures {
				failures = append(failures, failed.Violation)
			}
			continue
		}
		current = next
		for _, field := range added {
			filled[field] = p.name
		}
	}
	return current, filled, failures
}

// apply is object with what p fills in, and the fields that are. It is all or nothing.
func (d *defaulter) apply(ctx context.Context, p *policy, object *unstructured.Unstructured) (
	*unstructured.Unstructured, []string, *finding,
) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	found, _, err := p.params.find(ctx, d.lookup, p.name, d.namespace)
	if err != nil {
		f := p.failure(ruleParams, celenv.OneMessage(err.Error()))
		return nil, nil, &f
	}
	group := d.evaluation.Group(p.variables, nil)
	var added []string
	for _, values := range found {
		next, fields, failed := d.applyWith(ctx, p, group.With(values), object)
		if failed != nil {
			return nil, nil, failed
		}
		object, added = next, append(added, fields...)
	}
	return object, added, nil
}

// applyWith is apply with the parameters of group.
func (d *defaulter) applyWith(ctx context.Context, p *policy, group *celenv.Group, object *unstructured.Unstructured) (
	*unstructured.Unstructured, []string, *finding,
) {
	applies, failed := d.wants(p, group.Scope(ctx, object.Object, fields(d.OldObject)), object)
	if failed != nil || !applies {
		return object, nil, failed
	}
	var added []string
	for i, m := range p.mutations {
		if d.stored && m.admissionOnly {
			continue
		}
		next, fields, err := d.mutate(m, group.Scope(ctx, object.Object, fields(d.OldObject)), object)
		switch {
		case err == nil:
			object, added = next, append(added, fields...)
		case !d.proving:
			f := p.failed(fmt.Sprintf("mutations[%d]", i), err)
			return nil, nil, &f
		}
	}
	return object, added, nil
}

// mutate is object with what m sets, and the paths of the fields that it sets.
func (d *defaulter) mutate(m mutation, scope *celenv.Scope, object *unstructured.Unstructured) (
	*unstructured.Unstructured, []string, error,
) {
	proposed, err := m.propose(scope, object)
	if err != nil {
		return nil, nil, err
	}
	if d.specUnchanged && !d.proving {
		proposed = m.withoutSpec(proposed, object)
	}
	return m.merge(object, proposed)
}

// withoutSpec is proposed as far as it does not change the spec of object.
func (m mutation) withoutSpec(proposed, object *unstructured.Unstructured) *unstructured.Unstructured {
	rest := &unstructured.Unstructured{Object: maps.Clone(proposed.Object)}
	delete(rest.Object, "spec")
	if spec, set := object.Object["spec"]; set && m.patchType == v1alpha1.PatchTypeJSONPatch {
		rest.Object["spec"] = spec
	}
	return rest
}

// merge is object with what m sets of proposed, and the paths of the fields that it sets.
func (m mutation) merge(object, proposed *unstructured.Unstructured) (*unstructured.Unstructured, []string, error) {
	if m.override {
		return override(object, proposed, m.patchType == v1alpha1.PatchTypeJSONPatch)
	}
	return fill(object, proposed)
}

// wants tells whether p is to be applied to object.
func (d *defaulter) wants(p *policy, scope *celenv.Scope, object *unstructured.Unstructured) (bool, *finding) {
	if p.unusable != nil {
		f := p.failure("policy", "is not usable: "+celenv.OneMessage(p.unusable.Error()))
		return false, &f
	}
	selected, err := p.match.selects(d.at(object, d.OldObject))
	if err != nil {
		f := p.failure("matchConstraints", err.Error())
		return false, &f
	}
	if !selected {
		return false, nil
	}
	applies, failed := p.applies(scope)
	if len(failed) > 0 {
		return false, &failed[0]
	}
	return applies, nil
}

// propose is object as m would have it (JSONPatch), or only what m sets.
func (m mutation) propose(scope *celenv.Scope, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if m.broken != nil {
		return nil, m.broken
	}
	if m.patchType == v1alpha1.PatchTypeApplyConfiguration {
		set, err := m.Object(scope)
		if err != nil {
			return nil, err
		}
		proposed := &unstructured.Unstructured{Object: set}
		proposed.SetGroupVersionKind(object.GroupVersionKind())
		return proposed, nil
	}
	document, err := m.Patch(scope)
	if err != nil {
		return nil, err
	}
	return patch(object, document)
}

// patch is object after the JSON Patch document. A test operation that fails means that nothing is to be changed.
func patch(object *unstructured.Unstructured, document []byte) (*unstructured.Unstructured, error) {
	operations, err := jsonpatch.DecodePatch(document)
	if err != nil {
		return nil, fmt.Errorf("sets a patch that is not valid: %w", err)
	}
	original, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	options := jsonpatch.NewApplyOptions()
	options.AccumulatedCopySizeLimit = maxPatchGrowth
	patched, err := operations.ApplyWithOptions(original, options)
	if errors.Is(err, jsonpatch.ErrTestFailed) {
		return object, nil
	}
	if err != nil {
		return nil, fmt.Errorf("sets a patch that cannot be applied: %w", err)
	}
	result := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(patched, &result.Object); err != nil {
		return nil, fmt.Errorf("sets a patch after which there is no object: %w", err)
	}
	result.SetGroupVersionKind(object.GroupVersionKind())
	return result, nil
}

package policies

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stageset/stageset/api/v1alpha1"
)

// Summary is what a Set made of a policy.
type Summary struct {
	// Name, UID and Generation are of the version that was compiled. A policy that is built in has only a name.
	Name       string
	UID        types.UID
	Generation int64
	// BuiltIn tells that the policy is built in.
	BuiltIn bool
	// Target is what the policy is evaluated on.
	Target v1alpha1.Target
	// Problems are everything that is wrong with it; what is wrong is decided by failurePolicy.
	Problems Problems
	// Rules says where each validation is enforced.
	Rules []v1alpha1.RuleStatus
	// AdmissionOnly tells that nothing of the policy is evaluated by the reconciler.
	AdmissionOnly bool
}

// Policies are the policies of s, sorted by name.
func (s *Set) Policies() []Summary {
	all := make([]Summary, 0, len(s.policies))
	for _, p := range s.policies {
		all = append(all, Summary{
			Name: p.name, UID: p.uid, Generation: p.generation, BuiltIn: p.builtIn, Target: p.target,
			Problems: slices.Clone(s.problemsOf(p)), Rules: p.ruleStatuses(), AdmissionOnly: p.admissionOnly,
		})
	}
	return all
}

func (p *policy) ruleStatuses() []v1alpha1.RuleStatus {
	var all []v1alpha1.RuleStatus
	for _, r := range p.rules {
		all = append(all, v1alpha1.RuleStatus{Name: r.name, EnforcedAt: p.enforcedAt(r)})
	}
	return all
}

func (p *policy) enforcedAt(r rule) []v1alpha1.EnforcementPoint {
	var points []v1alpha1.EnforcementPoint
	if p.target == v1alpha1.TargetStageSet {
		points = append(points, v1alpha1.EnforcedAtAdmission)
		if p.admissionOnly || r.admissionOnly || !p.match.operations[v1alpha1.OperationCreate] {
			return points
		}
	}
	return append(points, v1alpha1.EnforcedAtReconcile)
}

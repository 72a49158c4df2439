package policies

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stageset/stageset/api/v1alpha1"
)

// withheld is said instead of why a rule about a Secret could not be evaluated.
const withheld = "cannot be evaluated: why is withheld, because it may quote a value of the Secret"

// rendersSecret tells that q is about a rendered Secret. What a policy says ends up where viewers read it, and text that is
// made from a Secret, by the author of a policy or by CEL's own errors, may hold any part of a value: no search for values
// would find them all. So only text that was fixed before is said then.
func (q question) rendersSecret() bool {
	return q.target == v1alpha1.TargetManifest && q.kind.GroupKind() == schema.GroupKind{Kind: "Secret"}
}

// withhold takes out of findings about a Secret what the evaluation said.
func withhold(findings []finding) {
	for i := range findings {
		if f := &findings[i]; f.failed && !f.limited && !f.uncompiled {
			f.Message = withheld
		}
	}
}

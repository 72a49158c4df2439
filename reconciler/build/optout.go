package build

import (
	"sigs.k8s.io/kustomize/api/types"

	v1 "github.com/stageset/stageset/api/v1"
)

// optOutText is the configuration of a transformer that annotates objects, and nothing in them, so that substitution leaves
// them as they are.
const optOutText = `{"apiVersion": "builtin", "kind": "AnnotationsTransformer", "metadata": {"name": "substitution-opt-out"}, ` +
	`"annotations": {"` + v1.AnnotationSubstitute + `": "` + v1.SubstituteDisabled + `"}, ` +
	`"fieldSpecs": [{"path": "metadata/annotations", "create": true}]}`

// vetOptOut lets the annotation of a kustomization hold for all that it renders. It comes after plugins are vetted, because
// it adds one.
func (s *scan) vetOptOut(at site, content *types.Kustomization) error {
	if content.MetaData == nil || content.MetaData.Annotations[v1.AnnotationSubstitute] != v1.SubstituteDisabled {
		return nil
	}
	if at.within.component {
		return at.fail(v1.AnnotationSubstitute, "a Component cannot opt out of substitution: it would for all that includes it; "+
			"annotate its objects")
	}
	content.Transformers = append(content.Transformers, optOutText)
	return nil
}

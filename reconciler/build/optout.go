package build

import (
	"sigs.k8s.io/kustomize/api/types"

	v1 "github.com/stageset/stageset/api/v1"
)

// optOut is the configuration of a transformer that annotates objects, and nothing in them, so that they are left as they
// are by substitution.
var optOut = map[string]any{
	"apiVersion":  "builtin",
	"kind":        "AnnotationsTransformer",
	"metadata":    map[string]any{"name": "substitution-opt-out"},
	"annotations": map[string]any{v1.AnnotationSubstitute: v1.SubstituteDisabled},
	"fieldSpecs":  []any{map[string]any{"path": "metadata/annotations", "create": true}},
}

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
	text, err := encode(optOut)
	if err != nil {
		return err
	}
	content.Transformers = append(content.Transformers, string(text))
	return nil
}

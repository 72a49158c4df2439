package build

import (
	"context"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
)

// stageComponents are the components of a stage, and the parts of its directory. As in kustomize-controller they are added
// to the directory's own kustomization, so that its name prefixes and patches come after them; a plain directory becomes a
// kustomization of its parts.
type stageComponents struct {
	references []string
	parts      []part
}

// isPlain says whether dir is the stage's and has no kustomization file.
func (s *scan) isPlain(dir string) bool {
	return s.components != nil && dir == s.stageDir &&
		!slices.Contains(s.components.parts, part{name: dir, kustomization: true})
}

// generate is a kustomization of all parts of the stage's directory, except for components that lie in it.
func (s *scan) generate(dir string) (site, *types.Kustomization, error) {
	file := path.Join(dir, kustomizationNames[0])
	at := site{file: file, dir: dir, within: &kustomization{file: file, visits: 1}}
	content := &types.Kustomization{}
	content.FixKustomization()
	for _, p := range s.components.parts {
		reference := p.name
		if dir != "." {
			reference = strings.TrimPrefix(p.name, dir+"/")
		}
		if !slices.ContainsFunc(s.components.references, func(c string) bool { return path.Join(dir, c) == p.name }) {
			content.Resources = append(content.Resources, reference)
		}
	}
	return at, content, nil
}

// addComponents adds the stage's components to the kustomization of its directory.
func (s *scan) addComponents(ctx context.Context, at site, content *types.Kustomization, trail []string) error {
	if s.components == nil || at.dir != s.stageDir {
		return nil
	}
	ofStage := site{file: "the stage", dir: at.dir, within: at.within}
	references := slices.Clone(s.components.references)
	if err := s.vetComponents(ctx, ofStage, references, trail); err != nil {
		return err
	}
	content.Components = append(content.Components, references...)
	return nil
}

package build

import (
	"strings"

	"sigs.k8s.io/kustomize/api/types"
)

func (s *scan) vetPatches(at site, content *types.Kustomization) error {
	for i := range content.Patches {
		if err := s.vetPatch(at, "patches", &content.Patches[i].Path, &content.Patches[i].Patch); err != nil {
			return err
		}
	}
	return nil
}

// vetOldPatches does the same for the fields that patches replaced.
func (s *scan) vetOldPatches(at site, content *types.Kustomization) error {
	for i := range content.PatchesJson6902 {
		old := &content.PatchesJson6902[i]
		if err := s.vetPatch(at, "patchesJson6902", &old.Path, &old.Patch); err != nil {
			return err
		}
	}
	for i, patch := range content.PatchesStrategicMerge {
		reference, text := string(patch), ""
		if strings.Contains(reference, "\n") {
			reference, text = "", reference
		}
		if err := s.vetPatch(at, "patchesStrategicMerge", &reference, &text); err != nil {
			return err
		}
		content.PatchesStrategicMerge[i] = types.PatchStrategicMerge(reference + text)
	}
	return nil
}

// vetPatch vets a patch that is a file or a text.
func (s *scan) vetPatch(at site, field string, reference, text *string) error {
	var (
		documents []document
		err       error
	)
	switch {
	case *reference != "" && *text != "":
		return at.fail(*reference, "%s: a patch has a path or a text, not both", field)
	case *reference != "":
		*reference, documents, err = s.yamlFile(at, field, *reference)
	default:
		*text, documents, err = s.inline(at, field, *text)
	}
	s.noteSecrets(documents)
	return err
}

func (s *scan) noteSecrets(documents []document) {
	for _, d := range documents {
		if fields, ok := d.value.(map[string]any); ok {
			s.noteSecret(fields)
		}
	}
}

func (s *scan) vetGenerators(at site, content *types.Kustomization) error {
	for i := range content.ConfigMapGenerator {
		if err := s.vetPairs(at, "configMapGenerator", &content.ConfigMapGenerator[i].KvPairSources, false); err != nil {
			return err
		}
	}
	for i := range content.SecretGenerator {
		if err := s.vetPairs(at, "secretGenerator", &content.SecretGenerator[i].KvPairSources, true); err != nil {
			return err
		}
	}
	return nil
}

// vetPairs vets what a generator reads. env was moved into envs when the file was decoded.
func (s *scan) vetPairs(at site, field string, sources *types.KvPairSources, secret bool) error {
	for _, literal := range sources.LiteralSources {
		if _, value, found := strings.Cut(literal, "="); secret && found {
			s.secrets.Add(strings.Trim(value, `"'`))
		} else if secret {
			s.secrets.Add(literal)
		}
	}
	for i, source := range sources.FileSources {
		key, reference, named := strings.Cut(source, "=")
		if !named {
			key, reference = "", source
		} else {
			key += "="
		}
		name, content, err := s.dataFile(at, field+".files", reference)
		if err != nil {
			return err
		}
		sources.FileSources[i] = key + name
		if secret {
			s.secrets.Add(strings.TrimSpace(string(content)))
		}
	}
	for i, reference := range sources.EnvSources {
		name, content, err := s.dataFile(at, field+".envs", reference)
		if err != nil {
			return err
		}
		sources.EnvSources[i] = name
		for line := range strings.Lines(string(content)) {
			if _, value, found := strings.Cut(line, "="); found && secret {
				s.secrets.Add(strings.TrimSpace(value))
			}
		}
	}
	return nil
}

func (s *scan) vetReplacements(at site, content *types.Kustomization) error {
	for i := range content.Replacements {
		if reference := &content.Replacements[i].Path; *reference != "" {
			var err error
			if *reference, _, err = s.yamlFile(at, "replacements", *reference); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *scan) vetConfigurations(at site, content *types.Kustomization) error {
	for i, reference := range content.Configurations {
		var err error
		if content.Configurations[i], _, err = s.yamlFile(at, "configurations", reference); err != nil {
			return err
		}
	}
	for i, reference := range content.Crds {
		canonical, documents, err := s.yamlFile(at, "crds", reference)
		if err != nil {
			return err
		}
		for _, d := range documents {
			if err := checkTypes(d); err != nil {
				return at.fail(reference, "crds: %q: %w", shorten(reference), err)
			}
		}
		content.Crds[i] = canonical
	}
	return nil
}

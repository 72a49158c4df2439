package build

import (
	"strings"

	"sigs.k8s.io/kustomize/api/types"
)

// vetPlugins vets the configurations in generators, transformers and validators: only kustomize's own are run, never a
// program, a container or helm. They are put into the kustomization itself, as they were understood.
func (s *scan) vetPlugins(at site, content *types.Kustomization) error {
	if err := s.vetPluginList(at, "generators", content.Generators); err != nil {
		return err
	}
	if err := s.vetPluginList(at, "transformers", content.Transformers); err != nil {
		return err
	}
	return s.vetPluginList(at, "validators", content.Validators)
}

func (s *scan) vetPluginList(at site, field string, entries []string) error {
	for i, entry := range entries {
		documents, err := s.pluginDocuments(at, field, entry)
		if err != nil {
			return err
		}
		for _, d := range documents {
			if err := s.vetPlugin(at, field, d); err != nil {
				return err
			}
		}
		text, err := encodeAll(documents)
		if err != nil {
			return at.fail(entry, "%s: %w", field, err)
		}
		entries[i] = string(text)
	}
	return nil
}

// pluginDocuments are those of an entry: a text with mappings, or a reference to a file.
func (s *scan) pluginDocuments(at site, field, entry string) ([]document, error) {
	if strings.ContainsAny(entry, "\n{") {
		_, documents, err := s.inline(at, field, entry)
		return documents, err
	}
	_, documents, err := s.yamlFile(at, field, entry)
	return documents, err
}

// plugin is the configuration of one of kustomize's own generators or transformers.
type plugin struct {
	scan   *scan
	at     site
	field  string
	fields map[string]any
}

// pluginFields are fields that name files or hold texts of YAML.
var pluginFields = []string{
	"path", "paths", "files", "env", "envs", "literals", "targetFilePath", "patch", "patches", "jsonOp", "replacements",
}

// vetPlugin vets one configuration and the files that it names.
func (s *scan) vetPlugin(at site, field string, d document) error {
	fields, ok := d.value.(map[string]any)
	if !ok {
		return at.fail("", "%s: a configuration is a mapping; this is a %s", field, kindOfValue(d.value))
	}
	kind, _ := fields["kind"].(string)
	p := plugin{scan: s, at: at, field: field, fields: fields}
	if fields["apiVersion"] != "builtin" {
		return p.refuse(kind)
	}
	if err := p.checkSpelling(); err != nil {
		return err
	}
	return p.vet(kind)
}

func (p plugin) refuse(kind string) error {
	return p.at.fail(kind, "%s: %q is not one of kustomize's own; plugins, functions and helm are never run",
		p.field, shorten(kind))
}

// checkSpelling refuses fields that are written in another case: kustomize takes them all the same.
func (p plugin) checkSpelling() error {
	for _, name := range pluginFields {
		for key := range p.fields {
			if key != name && strings.EqualFold(key, name) {
				return p.at.fail(key, "%s: write %q as %q", p.field, key, name)
			}
		}
	}
	return nil
}

func (p plugin) vet(kind string) error {
	switch kind {
	case "AnnotationsTransformer", "HashTransformer", "IAMPolicyGenerator", "ImageTagTransformer", "LabelTransformer",
		"NamespaceTransformer", "PrefixTransformer", "PrefixSuffixTransformer", "ReplicaCountTransformer", "SuffixTransformer":
		return nil // they read no files
	case "ConfigMapGenerator", "SecretGenerator":
		return p.vetPairs(kind == "SecretGenerator")
	case "PatchTransformer", "PatchJson6902Transformer", "PatchStrategicMergeTransformer":
		return p.vetPatch()
	case "ReplacementTransformer":
		return p.vetReplacements()
	case "ValueAddTransformer":
		return p.texts("targetFilePath", func(at site, field, reference string) (string, error) {
			name, _, err := p.scan.dataFile(at, field, reference)
			return name, err
		})
	default:
		return p.refuse(kind)
	}
}

func (p plugin) vetReplacements() error {
	replacements, _ := p.fields["replacements"].([]any)
	for _, item := range replacements {
		fields, ok := item.(map[string]any)
		if !ok {
			return p.at.fail("replacements", "%s: a replacement is a mapping; this is a %s", p.field, kindOfValue(item))
		}
		replacement := p
		replacement.fields = fields
		if err := replacement.checkSpelling(); err != nil {
			return err
		}
		if err := replacement.texts("path", p.yamlFile); err != nil {
			return err
		}
	}
	return nil
}

func (p plugin) yamlFile(at site, field, reference string) (string, error) {
	canonical, documents, err := p.scan.yamlFile(at, field, reference)
	p.scan.noteSecrets(documents)
	return canonical, err
}

func (p plugin) vetPatch() error {
	if err := p.texts("path", p.yamlFile); err != nil {
		return err
	}
	if err := p.texts("paths", p.yamlFile); err != nil {
		return err
	}
	for _, field := range []string{"patch", "patches", "jsonOp"} {
		err := p.texts(field, func(at site, field, text string) (string, error) {
			text, documents, err := p.scan.inline(at, field, text)
			p.scan.noteSecrets(documents)
			return text, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// texts replaces a text, or each text of a list, in the field of that name.
func (p plugin) texts(name string, replace func(at site, field, text string) (string, error)) error {
	switch value := p.fields[name].(type) {
	case string:
		replaced, err := replace(p.at, p.field+": "+name, value)
		p.fields[name] = replaced
		return err
	case []any:
		for i, item := range value {
			text, ok := item.(string)
			if !ok {
				return p.at.fail(name, "%s: %s holds something that is no text", p.field, name)
			}
			replaced, err := replace(p.at, p.field+": "+name, text)
			if err != nil {
				return err
			}
			value[i] = replaced
		}
	}
	return nil
}

func (p plugin) vetPairs(secret bool) error {
	var sources types.KvPairSources
	for name, list := range map[string]*[]string{
		"literals": &sources.LiteralSources, "files": &sources.FileSources, "envs": &sources.EnvSources,
	} {
		err := p.texts(name, func(_ site, _, text string) (string, error) {
			*list = append(*list, text)
			return text, nil
		})
		if err != nil {
			return err
		}
	}
	if env, ok := p.fields["env"].(string); ok {
		sources.EnvSources = append(sources.EnvSources, env)
		delete(p.fields, "env")
	}
	if err := p.scan.vetPairs(p.at, p.field, &sources, secret); err != nil {
		return err
	}
	p.set("files", sources.FileSources)
	p.set("envs", sources.EnvSources)
	return nil
}

func (p plugin) set(name string, texts []string) {
	if len(texts) == 0 {
		return
	}
	items := make([]any, len(texts))
	for i, text := range texts {
		items[i] = text
	}
	p.fields[name] = items
}

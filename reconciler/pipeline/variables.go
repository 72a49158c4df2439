package pipeline

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/build"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/tenant"
)

const (
	// maxValues bounds what the ConfigMaps and Secrets in postBuild.substituteFrom of all stages hold together, in bytes.
	maxValues = 4 << 20
	// maxSecrets bounds the forms of values of Secrets that each message is searched for, each counted once.
	maxSecrets = 10_000
)

// variables gives each stage the variables of its postBuild, and notes which of their values no message may tell. What
// substituteFrom names is read as the StageSet's own account, each object once, however many stages and objects use it. The
// problems of all stages are reported at once.
func (p *Pipeline) variables(ctx context.Context, set *v1.StageSet, pinned *Pinned) error {
	reader := valueReader{tenants: p.Tenants, set: set, readings: map[valueSource]reading{}}
	var problems []error
	for i := range pinned.Stages {
		stage := &pinned.Stages[i]
		if stage.Stage.PostBuild == nil {
			continue
		}
		stage.Variables = build.Variables{}
		for _, problem := range reader.fill(ctx, stage.Variables, stage.Stage.PostBuild) {
			failed := failure.From(problem).InStage(stage.Stage.Name)
			failed.Err = fmt.Errorf("stage %s: postBuild: %w", stage.Stage.Name, failed.Err)
			problems = append(problems, failed)
		}
	}
	pinned.secrets = reader.secrets.Redactor()
	return failure.Join(problems...)
}

// Redactor takes out of texts the values of all Secrets that a StageSet substitutes, as they are now. Its error says that some
// cannot be read: what they were is not known then.
func (p *Pipeline) Redactor(ctx context.Context, set *v1.StageSet) (func(text string) string, error) {
	reader := valueReader{tenants: p.Tenants, set: set, readings: map[valueSource]reading{}}
	for _, stage := range set.Spec.Stages {
		if stage.PostBuild == nil {
			continue
		}
		for _, ref := range stage.PostBuild.SubstituteFrom {
			source := valueSource{ref.Kind, ref.Name}
			if _, known := reader.readings[source]; known || ref.Kind != v1.SubstituteSecret {
				continue
			}
			found, err := reader.read(ctx, source)
			if err != nil {
				return nil, err
			}
			if found.missing {
				return nil, failure.NewStalled(v1.ReasonBuildFailed, "substituteFrom: %s does not exist", reader.describe(source))
			}
			reader.readings[source] = found
		}
	}
	return reader.secrets.Redactor().Redact, nil
}

// valueSource is a ConfigMap or Secret in the namespace of the StageSet.
type valueSource struct {
	kind v1.SubstituteKind
	name string
}

// reading is what was found of a valueSource.
type reading struct {
	values  build.Variables
	missing bool
}

// valueReader reads the values of one pass.
type valueReader struct {
	tenants  Tenants
	set      *v1.StageSet
	readings map[valueSource]reading
	// size is what all values take, in bytes; secrets are those of Secrets.
	size    int
	secrets build.Secrets
}

// fill adds the variables of a stage: those of substituteFrom in order, then those of substitute, of which the last win.
func (r *valueReader) fill(ctx context.Context, variables build.Variables, spec *v1.PostBuild) (problems []error) {
	for _, ref := range spec.SubstituteFrom {
		source := valueSource{ref.Kind, ref.Name}
		found, known := r.readings[source]
		if !known {
			var err error
			if found, err = r.read(ctx, source); err != nil {
				problems = append(problems, err)
			}
			r.readings[source] = found
		}
		if found.missing && !ref.Optional {
			problems = append(problems, failure.NewStalled(v1.ReasonBuildFailed,
				"substituteFrom: %s does not exist: create it, or set optional: true", r.describe(source)))
		}
		maps.Copy(variables, found.values)
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Substitute)) {
		if !build.IsVariableName(name) {
			problems = append(problems, failure.NewStalled(v1.ReasonInvalidSpec, "substitute: %q cannot be the name of a variable, "+
				"which has letters, digits and _, and does not begin with a digit", name))
		}
		variables[name] = build.Variable{Value: spec.Substitute[name]}
	}
	return problems
}

func (r *valueReader) describe(source valueSource) string {
	return fmt.Sprintf("%s %s/%s", source.kind, r.set.Namespace, source.name)
}

// read reads the values of a ConfigMap or Secret. Nothing of them is in an error.
func (r *valueReader) read(ctx context.Context, source valueSource) (reading, error) {
	client, err := readerOf(ctx, r.tenants, r.set, "substituteFrom")
	if err != nil {
		return reading{}, err
	}
	gvk := schema.GroupVersionKind{Version: "v1", Kind: string(source.kind)}
	object, err := client.Get(ctx, gvk, r.set.Namespace, source.name)
	switch {
	case apierrors.IsNotFound(err):
		return reading{missing: true}, nil
	case apierrors.IsForbidden(err):
		return reading{}, failure.NewStalled(v1.ReasonAccessDenied,
			"substituteFrom: %s may not get %s: grant it get on %s named %s in namespace %s",
			client.Identity(), r.describe(source), resources[source.kind], source.name, r.set.Namespace)
	case err != nil:
		return reading{}, tenant.Explain(err, fmt.Sprintf("substituteFrom: get %s as %s", r.describe(source), client.Identity()),
			tenant.Reasons{Refused: v1.ReasonBuildFailed})
	}
	return r.valuesOf(source, object)
}

// resources are the kinds as permissions name them.
var resources = map[v1.SubstituteKind]string{v1.SubstituteConfigMap: "configmaps", v1.SubstituteSecret: "secrets"}

// valuesOf are the entries whose keys manifests can refer to. The others are there for other purposes.
func (r *valueReader) valuesOf(source valueSource, object *unstructured.Unstructured) (reading, error) {
	data, _, err := unstructured.NestedStringMap(object.Object, "data")
	if err != nil {
		return reading{}, failure.NewStalled(v1.ReasonBuildFailed, "substituteFrom: data of %s is no map of texts", r.describe(source))
	}
	values := build.Variables{}
	for name, value := range data {
		if !build.IsVariableName(name) {
			continue
		}
		if source.kind == v1.SubstituteSecret {
			raw, err := base64.StdEncoding.DecodeString(value)
			if err != nil {
				return reading{}, failure.NewStalled(v1.ReasonBuildFailed, "substituteFrom: %s of %s is not base64",
					name, r.describe(source))
			}
			value = string(raw)
			r.secrets.Add(value)
		}
		r.size += len(name) + len(value)
		values[name] = build.Variable{Value: value, Secret: source.kind == v1.SubstituteSecret}
	}
	if r.size > maxValues || r.secrets.Size() > maxSecrets {
		return reading{}, failure.NewStalled(v1.ReasonInvalidSpec, "substituteFrom: with %s, the values are more than %d MiB, or "+
			"those of Secrets more than %d lines: name objects that hold variables and nothing else",
			r.describe(source), maxValues>>20, maxSecrets)
	}
	return reading{values: values}, nil
}

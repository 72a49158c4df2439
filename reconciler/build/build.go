package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// Options are what of a stage decides how it renders.
type Options struct {
	// Path is the directory in the artifact; empty means its root.
	Path string
	// Components are directories with Components of kustomize, relative to Path.
	Components []string
	// Patches, Images and CommonMetadata are those of the stage, applied in this order to what the directory renders.
	Patches        []v1.Patch
	Images         []v1.Image
	CommonMetadata *v1.CommonMetadata
	// Variables are what postBuild substitutes in all of that.
	Variables Variables
	// Namespace is whose build it is, when many are; nothing that it renders depends on it.
	Namespace string `json:"-"`
}

// OptionsOf are those of a stage, with the values of the variables of its postBuild.
func OptionsOf(stage v1.Stage, variables Variables) Options {
	return Options{
		Path:           stage.Path,
		Components:     stage.Components,
		Patches:        stage.Patches,
		Images:         stage.Images,
		CommonMetadata: stage.CommonMetadata,
		Variables:      variables,
	}
}

// kustomizationNames are the names of the file that makes a directory a kustomization.
var kustomizationNames = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// Build renders the directory opts.Path of artifact.
//
// A directory with a kustomization file is built with kustomize. In any other, every .yaml, .yml and .json file below it
// is read; a directory below it that has a kustomization file is built with kustomize in its place, as
// kustomize-controller does. Components make it a kustomization, if it is none. Then come patches, images and common
// metadata; variables are substituted in what there is then, and the stringData of Secrets is folded into their data.
//
// A failure is a failure.Error with reason BuildFailed whose message names file and line where there is one: Stalled, as
// the same artifact never renders otherwise, except where time ran out.
func Build(ctx context.Context, artifact fs.FS, opts Options) (Manifests, error) {
	return buildBeside(ctx, nil, artifact, opts)
}

// buildBeside is Build beside others, of which only some may be large.
func buildBeside(ctx context.Context, large *slots, artifact fs.FS, opts Options) (m Manifests, err error) {
	b := &builder{
		artifact: artifact, parser: parser{objects: objectBudget()}, input: inputBudget(),
		slot: slot{of: large, namespace: opts.Namespace},
	}
	defer func() {
		if fault := recover(); fault != nil {
			m, err = Manifests{}, failure.NewStalled(v1.ReasonBuildFailed, "%w", faultError(fault))
		}
		b.slot.leave(err)
	}()
	objects, err := b.build(ctx, opts)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return Manifests{}, fmt.Errorf("build: %w", context.Cause(ctx))
	case errors.Is(err, errBusy):
		return Manifests{}, failure.NewWaiting(v1.ReasonProgressing, busyPause, "%w", err)
	case errors.Is(err, errTooSlow):
		return Manifests{}, failure.NewTransient(v1.ReasonBuildFailed, "%w", err)
	default:
		return Manifests{}, failure.NewStalled(v1.ReasonBuildFailed, "%w", err)
	}
	slices.Sort(b.ignored)
	return Manifests{objects: objects, ignored: b.ignored, size: sizeOf(objects)}, nil
}

// faultError is a panic as an error. The value of a panic may hold anything, also of a Secret, so that only the faults of
// the runtime are told.
func faultError(fault any) error {
	if known, ok := fault.(runtime.Error); ok {
		return fmt.Errorf("the build broke off, which is a defect of the reconciler: %w", known)
	}
	return fmt.Errorf("the build broke off, which is a defect of the reconciler (%T)", fault)
}

// builder is the state of one build.
type builder struct {
	parser
	artifact fs.FS
	input    *budget
	slot     slot
	ignored  []string
}

func (b *builder) build(ctx context.Context, opts Options) ([]Object, error) {
	dir, err := b.directory(opts.Path)
	if err != nil {
		return nil, err
	}
	objects, err := b.render(ctx, dir, opts.Components)
	if err != nil {
		return nil, err
	}
	if err := checkAll(objects); err != nil {
		return nil, err
	}
	if objects, err = b.patch(objects, opts.Patches); err != nil {
		return nil, err
	}
	if err := b.replaceImages(objects, opts.Images); err != nil {
		return nil, err
	}
	addMetadata(objects, opts.CommonMetadata)
	if err := b.substitute(objects, opts.Variables); err != nil {
		return nil, err
	}
	for _, object := range objects {
		if err := object.foldSecret(); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// directory is the directory of the artifact that a stage's path names.
func (b *builder) directory(stagePath string) (string, error) {
	dir := path.Clean(strings.TrimLeft(stagePath, "/"))
	if !fs.ValidPath(dir) {
		return "", fmt.Errorf("path %q leads out of the artifact", stagePath)
	}
	info, err := fs.Stat(b.artifact, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("path %q does not exist in the artifact", stagePath)
	}
	if err != nil {
		return "", fmt.Errorf("path %q: %w", stagePath, err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("path %q is a file, not a directory", stagePath)
	}
	return dir, nil
}

// readFile is the content of a file of the artifact.
func (b *builder) readFile(name string) ([]byte, error) {
	data, err := fs.ReadFile(b.artifact, name)
	if err != nil {
		return nil, err
	}
	if err := b.input.spend(len(data)); err != nil {
		return nil, located(name, 0, "%w", err)
	}
	return data, b.slot.need(MaxInput - b.input.left)
}

func checkAll(objects []Object) error {
	for _, object := range objects {
		if err := object.check(); err != nil {
			return err
		}
	}
	return nil
}

// addMetadata sets labels and annotations on every object.
func addMetadata(objects []Object, common *v1.CommonMetadata) {
	if common == nil {
		return
	}
	for _, object := range objects {
		if len(common.Labels) > 0 {
			object.SetLabels(merged(object.GetLabels(), common.Labels))
		}
		if len(common.Annotations) > 0 {
			object.SetAnnotations(merged(object.GetAnnotations(), common.Annotations))
		}
	}
}

// merged is base with what over has, which wins.
func merged(base, over map[string]string) map[string]string {
	result := make(map[string]string, len(base)+len(over))
	maps.Copy(result, base)
	maps.Copy(result, over)
	return result
}

// sizeOf is about what objects take in memory, in bytes.
func sizeOf(objects []Object) int64 {
	size := int64(0)
	for _, object := range objects {
		size += sizeOfValue(object.Object) + int64(len(object.Origin))
	}
	return size
}

func sizeOfValue(value any) int64 {
	size := int64(nodeCost)
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			size += int64(len(key)) + nodeCost + sizeOfValue(field)
		}
	case []any:
		for _, item := range value {
			size += sizeOfValue(item)
		}
	case string:
		size += int64(len(value))
	}
	return size
}

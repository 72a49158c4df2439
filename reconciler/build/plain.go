package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// manifestExtensions are those of files that a plain directory's manifests are in, in whatever case.
var manifestExtensions = []string{".yaml", ".yml", ".json"}

// part is something that a directory renders: a file of manifests, or a directory that kustomize builds.
type part struct {
	name          string
	kustomization bool
}

// render is what a directory renders: with kustomize if it has a kustomization file, else its files and directories in
// the order of their names. With components, kustomize does all of it.
func (b *builder) render(ctx context.Context, dir string, components []string) ([]Object, error) {
	parts, err := b.parts(ctx, dir)
	if err != nil {
		return nil, err
	}
	if len(components) > 0 {
		return b.kustomize(ctx, dir, &stageComponents{references: components, parts: parts})
	}
	var objects []Object
	for _, p := range parts {
		found, err := b.renderPart(ctx, p)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

func (b *builder) renderPart(ctx context.Context, p part) ([]Object, error) {
	if p.kustomization {
		return b.kustomize(ctx, p.name, nil)
	}
	data, err := b.readFile(p.name)
	if err != nil {
		return nil, err
	}
	documents, err := b.parse(p.name, data)
	if err != nil {
		return nil, err
	}
	return objectsIn(p.name, documents)
}

// parts are those of a directory, in the order of their names: the directory itself if it has a kustomization file.
func (b *builder) parts(ctx context.Context, dir string) ([]part, error) {
	entries, err := fs.ReadDir(b.artifact, dir)
	if err != nil {
		return nil, fmt.Errorf("directory %q: %w", dir, errors.Unwrap(err))
	}
	for _, entry := range entries {
		if slices.Contains(kustomizationNames, entry.Name()) && !entry.IsDir() {
			return []part{{name: dir, kustomization: true}}, nil
		}
	}
	var parts []part
	for _, entry := range entries {
		found, err := b.entryParts(ctx, path.Join(dir, entry.Name()), entry)
		if err != nil {
			return nil, err
		}
		parts = append(parts, found...)
	}
	return parts, nil
}

// entryParts are those of an entry of a plain directory.
func (b *builder) entryParts(ctx context.Context, name string, entry fs.DirEntry) ([]part, error) {
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case entry.IsDir():
		return b.parts(ctx, name)
	case !entry.Type().IsRegular():
		return nil, located(name, 0, "is neither a file nor a directory")
	case !slices.Contains(manifestExtensions, strings.ToLower(path.Ext(name))):
		b.ignored = append(b.ignored, name)
		return nil, nil
	}
	return []part{{name: name}}, nil
}

// objectsIn are the objects of the documents of a file.
func objectsIn(name string, documents []document) ([]Object, error) {
	var objects []Object
	for _, d := range documents {
		found, err := objectsOf(name, d)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
)

// manifestExtensions are those of files that a plain directory's manifests are in.
var manifestExtensions = []string{".yaml", ".yml", ".json"}

// render is what a directory renders: with kustomize if it has a kustomization file, else its files and directories in
// the order of their names.
func (b *builder) render(ctx context.Context, dir string) ([]Object, error) {
	entries, err := fs.ReadDir(b.artifact, dir)
	if err != nil {
		return nil, fmt.Errorf("directory %q: %w", dir, errors.Unwrap(err))
	}
	for _, entry := range entries {
		if slices.Contains(kustomizationNames, entry.Name()) && !entry.IsDir() {
			return b.kustomize(ctx, dir)
		}
	}
	var objects []Object
	for _, entry := range entries {
		found, err := b.renderEntry(ctx, path.Join(dir, entry.Name()), entry)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

// renderEntry is what an entry of a plain directory renders.
func (b *builder) renderEntry(ctx context.Context, name string, entry fs.DirEntry) ([]Object, error) {
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case entry.IsDir():
		return b.render(ctx, name)
	case !entry.Type().IsRegular():
		return nil, located(name, 0, "is neither a file nor a directory")
	case !slices.Contains(manifestExtensions, path.Ext(name)):
		b.ignored = append(b.ignored, name)
		return nil, nil
	}
	data, err := b.readFile(name)
	if err != nil {
		return nil, err
	}
	documents, err := b.parse(name, data)
	if err != nil {
		return nil, err
	}
	return objectsIn(name, documents)
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

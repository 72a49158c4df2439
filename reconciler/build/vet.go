package build

import (
	"context"

	"sigs.k8s.io/kustomize/api/types"
)

// vet checks what a kustomization says and reads all that it refers to; afterwards every reference in content begins with
// a dot or is absolute, and every text of YAML is free of anchors.
func (s *scan) vet(ctx context.Context, at site, content *types.Kustomization, trail []string) error {
	if err := s.vetResources(ctx, at, content, trail); err != nil {
		return err
	}
	for _, vetField := range []func(site, *types.Kustomization) error{
		s.vetPatches, s.vetOldPatches, s.vetGenerators, s.vetReplacements, s.vetConfigurations, s.vetPlugins, s.vetOptOut,
	} {
		if err := vetField(at, content); err != nil {
			return err
		}
	}
	return nil
}

// vetResources follows resources (into which bases were moved when the file was decoded) and components.
func (s *scan) vetResources(ctx context.Context, at site, content *types.Kustomization, trail []string) error {
	for i, reference := range content.Resources {
		to, err := s.resolve(at, "resources", reference)
		if err != nil {
			return err
		}
		if to.isDir {
			err = s.include(ctx, at, to, false, trail)
		} else {
			err = s.resourceFile(at, reference, to)
		}
		if err != nil {
			return err
		}
		content.Resources[i] = to.reference
	}
	return s.vetComponents(ctx, at, content.Components, trail)
}

// vetComponents follows references to components, and writes them as kustomize may see them.
func (s *scan) vetComponents(ctx context.Context, at site, references []string, trail []string) error {
	for i, reference := range references {
		to, err := s.resolve(at, "components", reference)
		if err != nil {
			return err
		}
		if !to.isDir {
			return at.fail(reference, "components: %q is not a directory", shorten(reference))
		}
		if err := s.include(ctx, at, to, true, trail); err != nil {
			return err
		}
		references[i] = to.reference
	}
	return nil
}

// include enters a directory that a kustomization includes, and counts what it does.
func (s *scan) include(ctx context.Context, at site, to target, component bool, trail []string) error {
	included, err := s.enter(ctx, to.name, trail)
	if err != nil {
		return err
	}
	switch {
	case included.component && !component:
		return located(included.file, 0, "%s includes this Component as a resource; list it under components", at.file)
	case component && !included.component:
		return located(included.file, 0, "%s includes this as a component, but it is not of kind Component", at.file)
	}
	if component {
		at.within.components = append(at.within.components, to.name)
	} else {
		at.within.bases = append(at.within.bases, to.name)
	}
	at.within.visits += included.visits
	at.within.bytes += included.bytes
	if at.within.visits > maxBaseVisits {
		return located(at.file, 0, "more than %d kustomizations are included", maxBaseVisits)
	}
	if at.within.bytes > MaxInput {
		return located(at.file, 0, "what is included has more than %d MiB", MaxInput>>20)
	}
	return nil
}

// resourceFile reads a file of manifests.
func (s *scan) resourceFile(at site, reference string, to target) error {
	documents, err := s.documents(at, "resources", reference, to)
	if err != nil {
		return err
	}
	objects, err := objectsIn(to.name, documents)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := object.check(); err != nil {
			return err
		}
		key := originKey(object)
		if _, twice := s.origins[key]; twice {
			s.origins[key] = ""
		} else {
			s.origins[key] = object.Origin
		}
		s.noteSecret(object.Object)
		at.within.items = append(at.within.items, newItem(object, to.name))
	}
	return s.offer(to.name, documents)
}

// originKey finds a rendered object's file again, as long as kustomize has not renamed it.
func originKey(object Object) string {
	return object.GroupVersionKind().GroupKind().String() + " " + object.GetName()
}

// noteSecret notes the values of a Secret, or of a patch for one.
func (s *scan) noteSecret(fields map[string]any) {
	if fields["kind"] == "Secret" {
		s.secrets.addAll(fields["data"])
		s.secrets.addAll(fields["stringData"])
	}
}

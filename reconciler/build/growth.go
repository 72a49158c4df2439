package build

import (
	"context"

	"sigs.k8s.io/kustomize/api/types"
)

const (
	// maxGrowth bounds what kustomize may add to the objects of a stage by copying, in bytes as MaxObjects counts them. In
	// memory it takes some fifteen times that.
	maxGrowth = MaxObjects
	// maxKustomized bounds the objects that kustomize works on at once: it takes time for the square of their number.
	maxKustomized = 10_000
	// maxSteps bounds how often kustomize compares a target with an object, and other work of which it does as much.
	maxSteps = 10_000_000
)

// growth goes through the kustomizations of a build as kustomize will, and adds up what they make it copy, at its largest: a
// small file can make kustomize use any amount of memory, and it cannot be stopped once it runs.
//
// It is an estimate. What only a build can tell is not in it, such as a field that one patch adds and another one copies.
type growth struct {
	scan  *scan
	left  int64
	steps int
	// largestPatch is what a field that is copied may have been patched to, in bytes.
	largestPatch int64
	// custom says that names, labels and images are copied to places of the tenant's own choice.
	custom bool
	// manifests are those that were looked into, by file, kind and name.
	manifests map[string]map[string][]Object
}

// checkGrowth refuses kustomizations that would have kustomize copy too much, and gives the size that the objects may come to.
// dir is the first of the kustomizations.
func (s *scan) checkGrowth(ctx context.Context, dir string) (int64, error) {
	items, err := newGrowth(s).enter(ctx, dir, nil)
	size := int64(0)
	for _, it := range items {
		size += it.size
	}
	return size, err
}

func newGrowth(s *scan) *growth {
	g := &growth{scan: s, left: maxGrowth, manifests: map[string]map[string][]Object{}}
	for _, k := range s.kustomizations {
		for _, p := range s.patchesOf(k) {
			g.largestPatch = max(g.largestPatch, int64(len(p.text)))
		}
		g.custom = g.custom || len(k.content.Configurations) > 0 || len(k.content.Crds) > 0
	}
	return g
}

// enter gives the items that there are after the kustomization in dir. A component works on those that are there already.
func (g *growth) enter(ctx context.Context, dir string, items []*item) ([]*item, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	k := g.scan.kustomizations[dir]
	for _, it := range k.items {
		items = append(items, it.clone())
	}
	for _, base := range k.bases {
		found, err := g.enter(ctx, base, nil)
		if err != nil {
			return nil, err
		}
		items = append(items, found...)
	}
	items = append(items, g.scan.generatedBy(k)...)
	if len(items) > maxKustomized {
		return nil, located(k.file, 0, "kustomize would work on more than %d objects, which takes too long: split the stage, or "+
			"use a directory without a kustomization", maxKustomized)
	}
	for _, component := range k.components {
		var err error
		if items, err = g.enter(ctx, component, items); err != nil {
			return nil, err
		}
	}
	return items, g.transform(k, items)
}

// transform counts what a kustomization's transformers copy into items.
func (g *growth) transform(k *kustomization, items []*item) error {
	if err := g.metadata(k, items); err != nil {
		return err
	}
	for _, p := range g.scan.patchesOf(k) {
		if err := g.patch(k, p, items); err != nil {
			return err
		}
	}
	for _, text := range g.textsOf(k.content) {
		if err := g.step(k, len(items)); err != nil {
			return err
		}
		for _, it := range items {
			places := text.places(it)
			if g.custom {
				places = it.fields
			}
			if err := g.add(k, text.field, it, text.size*places); err != nil {
				return err
			}
		}
	}
	replacements, err := g.scan.replacementsOf(k)
	if err != nil {
		return err
	}
	for _, r := range replacements {
		if err := g.replace(k, r, items); err != nil {
			return err
		}
	}
	for _, v := range k.content.Vars {
		if err := g.expand(k, v, items); err != nil {
			return err
		}
	}
	return nil
}

// add counts what a field of a kustomization copies into an item.
func (g *growth) add(k *kustomization, field string, it *item, bytes int64) error {
	it.size += bytes
	if g.left -= bytes; g.left < 0 {
		return located(k.file, 0, "%s: kustomize may have to copy more than %d MiB: narrow the targets, or split the stage",
			field, maxGrowth>>20)
	}
	return nil
}

// step counts work.
func (g *growth) step(k *kustomization, count int) error {
	if g.steps += count; g.steps > maxSteps {
		return located(k.file, 0, "kustomize would take too long: objects are compared with targets, and the like, more than %d "+
			"times; split the stage", maxSteps)
	}
	return nil
}

// selected are the items that a target may select, by kind and name. A name is matched without what prefixes and suffixes
// have added to it.
func (g *growth) selected(k *kustomization, target *types.Selector, items []*item) ([]*item, error) {
	if err := g.step(k, len(items)); err != nil || target == nil {
		return items, err
	}
	matches, err := matcher(target.Kind, target.Name)
	if err != nil {
		return nil, located(k.file, 0, "the pattern of a target is no regular expression")
	}
	var found []*item
	for _, it := range items {
		if matches(it) {
			found = append(found, it)
		}
	}
	return found, nil
}

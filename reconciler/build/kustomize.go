package build

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
)

// errTooSlow says that kustomize took too long.
var errTooSlow = fmt.Errorf("kustomize took longer than %s", kustomizeTimeout)

// kustomize is what the kustomization in dir renders.
//
// kustomize would fetch remote bases with git and over HTTP, and offers no way to forbid it. So it never sees the artifact:
// a scan first reads every file that the kustomization reaches, and kustomize then works on what the scan understood (see
// scan). There, no reference has the form of a URL, and no file but those that the scan found exists.
//
// What this does not bound is the memory that replacements and vars can make of a small kustomization.
func (b *builder) kustomize(ctx context.Context, dir string) ([]Object, error) {
	s := newScan(b)
	entered, err := s.enter(ctx, dir, nil)
	if err != nil {
		return nil, err
	}
	if entered.component {
		return nil, located(entered.file, 0, "a Component renders nothing by itself; include it from a kustomization")
	}
	warmUp()
	resources, err := s.run(ctx, dir)
	if err != nil {
		return nil, err
	}
	objects := make([]Object, 0, resources.Size())
	file := entered.file
	for _, resource := range resources.Resources() {
		fields, err := b.fromNode(file, resource.YNode())
		if err != nil {
			return nil, err
		}
		object := Object{&unstructured.Unstructured{Object: fields}, file}
		if origin := s.origins[originKey(object)]; origin != "" {
			object.Origin = origin
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// run runs kustomize, which knows no context: when ctx ends, it is left alone and stops at the next file that it reads.
func (s *scan) run(ctx context.Context, dir string) (resmap.ResMap, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, kustomizeTimeout, errTooSlow)
	type outcome struct {
		resources resmap.ResMap
		err       error
	}
	done := make(chan outcome, 1)
	go func() {
		defer cancel()
		var o outcome
		defer func() {
			if fault := recover(); fault != nil {
				o = outcome{err: faultError(fault)}
			}
			done <- o
		}()
		options := krusty.MakeDefaultOptions() // no plugins, the order of the files
		options.LoadRestrictions = types.LoadRestrictionsNone
		o.resources, o.err = krusty.MakeKustomizer(options).Run(vettedFiles{scan: s, alive: ctx.Err}, "/"+dir)
	}()
	select {
	case o := <-done:
		if o.err != nil && ctx.Err() == nil {
			return nil, fmt.Errorf("%s: kustomize: %w", s.kustomizations[dir].file, s.redacted(o.err))
		}
		return o.resources, o.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// redacted is an error of kustomize's without what it may quote of Secrets.
func (s *scan) redacted(err error) error { return errors.New(s.secrets.message(err.Error())) }

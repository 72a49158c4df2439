package build

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
)

// errTooSlow says that kustomize took too long.
var errTooSlow = fmt.Errorf("kustomize took longer than %s", kustomizeTimeout)

// leftAloneError is a run of kustomize that nobody waits for any more.
type leftAloneError struct {
	err error
	// ended is closed when the run has ended.
	ended <-chan struct{}
}

func (e *leftAloneError) Error() string { return e.err.Error() }
func (e *leftAloneError) Unwrap() error { return e.err }

// kustomize is what the kustomization in dir renders, with the components of the stage if it is the stage's directory.
//
// kustomize would fetch remote bases with git and over HTTP, and offers no way to forbid it. So it never sees the artifact:
// a scan first reads every file that the kustomization reaches, and kustomize then works on what the scan understood (see
// scan). There, no reference has the form of a URL, and no file but those that the scan found exists.
//
// What it copies cannot be bounded while it runs, so that it is estimated before (see growth).
func (b *builder) kustomize(ctx context.Context, dir string, components *stageComponents) ([]Object, error) {
	s := newScan(b)
	if components != nil {
		s.stageDir, s.components = dir, components
	}
	entered, err := s.enter(ctx, dir, nil)
	if err != nil {
		return nil, err
	}
	if entered.component {
		return nil, located(entered.file, 0, "a Component renders nothing by itself; include it from a kustomization")
	}
	size, err := s.checkGrowth(ctx, dir)
	if err != nil {
		return nil, err
	}
	if err := b.slot.need(size); err != nil {
		return nil, err
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

// run runs kustomize, which knows no context: when ctx ends, it is left alone, and stops at the next file that it reads or
// when it is done.
func (s *scan) run(ctx context.Context, dir string) (resmap.ResMap, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, kustomizeTimeout, errTooSlow)
	defer cancel()
	var (
		resources resmap.ResMap
		err       error
	)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		resources, err = s.krusty(vettedFiles{scan: s, alive: ctx.Err}, dir)
	}()
	select {
	case <-ended:
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return resources, err
	case <-ctx.Done():
		return nil, &leftAloneError{context.Cause(ctx), ended}
	}
}

// krusty runs kustomize to its end. Neither a panic of it nor what it quotes of Secrets in its errors goes further.
func (s *scan) krusty(files vettedFiles, dir string) (resources resmap.ResMap, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			resources, err = nil, faultError(fault)
		}
		if err != nil {
			err = fmt.Errorf("%s: kustomize: %s", s.kustomizations[dir].file, s.secrets.message(err.Error()))
		}
	}()
	options := krusty.MakeDefaultOptions() // no plugins, the order of the files
	options.LoadRestrictions = types.LoadRestrictionsNone
	return krusty.MakeKustomizer(options).Run(files, "/"+dir)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
)

// uninstallPatience bounds how long a cluster that is not the demo's own is cleaned.
const uninstallPatience = 2 * time.Minute

// uninstall removes from the cluster what was applied. StageSets and sources go first, while the programs that have to
// finish them still run.
func (d *demo) uninstall() error {
	// The run's own context has ended.
	ctx, cancel := context.WithTimeout(context.Background(), uninstallPatience)
	defer cancel()
	var problems []error
	if len(d.programs) > 0 {
		problems = append(problems,
			d.admin.deleteAll(ctx, v1.GroupVersion.WithKind("StageSetList")),
			d.admin.deleteAll(ctx, kindGitRepository.GroupVersion().WithKind("GitRepositoryList")))
	}
	problems = append(problems, d.stopPrograms())
	for _, object := range slices.Backward(d.admin.applied) {
		if err := d.admin.delete(ctx, object); err != nil {
			problems = append(problems, fmt.Errorf("deleting %s: %w", describe(object), err))
		}
	}
	for _, object := range d.admin.applied {
		problems = append(problems, await(ctx, "the deletion of "+describe(object), patience, func(ctx context.Context) error {
			err := d.admin.Get(ctx, client.ObjectKeyFromObject(object), object)
			if err == nil {
				return errors.New("it is still there")
			}
			return ignoreGone(err)
		}))
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("the cluster is not as it was before; what was applied has the label %s=%s: %w", labelOwner, owner, err)
	}
	return nil
}

// deleteAll deletes all objects of a kind and waits until they are gone.
func (a *admin) deleteAll(ctx context.Context, kind schema.GroupVersionKind) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	return await(ctx, "the deletion of all of "+kind.Kind, patience, func(ctx context.Context) error {
		if err := a.List(ctx, list); err != nil || len(list.Items) == 0 {
			return ignoreGone(err) // the run may not have come as far as the CRD
		}
		for i := range list.Items {
			if list.Items[i].GetDeletionTimestamp().IsZero() {
				if err := a.delete(ctx, &list.Items[i]); err != nil {
					return err
				}
			}
		}
		return fmt.Errorf("%d are left, among them %s", len(list.Items), describe(&list.Items[0]))
	})
}

package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/drift"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/tenant"
)

// Rights is what can be known of an account's permissions without using them.
type Rights interface {
	// Resource is the resource of a kind, as permissions name it; a meta.NoKindMatchError if the kind is not served.
	Resource(ctx context.Context, gvk schema.GroupVersionKind) (string, error)
	// Missing are those of the needed permissions that the account does not have. That it has one may be known from a moment
	// ago, unless the answer has to be fresh.
	Missing(ctx context.Context, needed tenant.Permissions, fresh bool) (tenant.Permissions, error)
}

// Leaving is what a stage applied and no stage renders any more: it is deleted as the account that applied it.
type Leaving struct {
	Stage   string
	Account tenant.Account
	Target  Rights
	Entries []v1.InventoryEntry
}

// lack is what an account lacks for a stage.
type lack struct {
	stage   string
	account tenant.Account
	tenant.Permissions
}

// lacks finds out which permissions the release needs and its accounts do not have, before anything is written, and keeps
// the objects that they are about from being dry-run. What the release itself may give before it is needed is no lack yet:
// the object is deferred, and Permit asks again. A release that has nothing to write asks nothing.
func lacks(ctx context.Context, in Input, stages []ClearedStage) ([]lack, error) {
	if in.Applied || !writes(in, stages) {
		return nil, nil
	}
	var all []lack
	defined := definedResources(stages)
	for i := range stages {
		stage := &stages[i]
		if err := stage.findLacks(ctx, in, defined); err != nil {
			return nil, cannotAsk(stage.name, stage.account, err)
		}
		if found := stage.lack(); len(found.Permissions) > 0 {
			all = append(all, found)
		}
	}
	for _, leaving := range in.Leaving {
		missing, err := leaving.lacks(ctx)
		if err != nil {
			return nil, cannotAsk(leaving.Stage, leaving.Account, err)
		}
		if len(missing) > 0 {
			all = append(all, lack{leaving.Stage, leaving.Account, missing})
		}
	}
	return all, nil
}

// writes is true when something is to be written or deleted. What is only suspect may not have changed at all; if it has,
// its dry-run shows whether it may be written.
func writes(in Input, stages []ClearedStage) bool {
	return len(in.Leaving) > 0 || slices.ContainsFunc(stages, func(stage ClearedStage) bool {
		return slices.ContainsFunc(stage.objects, func(object *Object) bool {
			return object.Changed() && object.state != drift.Suspect
		})
	})
}

// definedResources are the resources of the kinds that the release itself defines.
func definedResources(stages []ClearedStage) map[schema.GroupKind]string {
	defined := map[schema.GroupKind]string{}
	for _, stage := range stages {
		for _, object := range stage.objects {
			if object.key.GroupKind() != (schema.GroupKind{Group: crdGroup, Kind: "CustomResourceDefinition"}) {
				continue
			}
			if kind, ok := definedKind(object.Desired()); ok {
				defined[kind] = text(object.Desired().Object, "spec", "names", "plural")
			}
		}
	}
	return defined
}

// findLacks notes for each object of the stage what the account lacks for it, and what it may not read of readyChecks.
func (s *ClearedStage) findLacks(ctx context.Context, in Input, defined map[schema.GroupKind]string) error {
	var needed tenant.Permissions
	objects := map[tenant.Permission]*Object{}
	for _, object := range s.objects {
		needs, err := s.needs(ctx, in, object, defined)
		if err != nil {
			return err
		}
		for _, need := range needs {
			objects[need] = object
		}
		needed = append(needed, needs...)
	}
	reads, err := s.reads(ctx, defined)
	if err != nil {
		return err
	}
	missing, err := s.target.Missing(ctx, append(needed, reads...), false)
	if err != nil {
		return err
	}
	for _, permission := range missing {
		if object, applied := objects[permission]; applied {
			object.lacks = append(object.lacks, permission)
		} else {
			s.unread = append(s.unread, permission)
		}
	}
	if err := s.forgiveExisting(ctx, in.Concurrency); err != nil {
		return err
	}
	for _, object := range s.objects {
		switch {
		case len(object.lacks) == 0:
		case object.gift == nil:
			object.unfit = true
		case object.waitsFor == "":
			object.waitsFor = object.gift.by.String()
		}
	}
	return nil
}

// needs are the permissions that applying an object needs, and, in a stage that prunes, deleting it some day: a release that
// nobody could take away again is better not begun. A kind that neither the cluster nor the release defines needs none: its
// dry-run says what is wrong.
func (s *ClearedStage) needs(ctx context.Context, in Input, object *Object, defined map[schema.GroupKind]string) (
	tenant.Permissions, error,
) {
	resource, err := s.resource(ctx, object.Desired().GroupVersionKind(), defined)
	if err != nil || resource == "" {
		return nil, err
	}
	verbs := []string{"get", "patch"}
	if object.live == nil && in.Recorded[object.key].UID == "" {
		verbs = append(verbs, "create")
	}
	spared := inventory.Place{Cluster: in.Applier.Cluster, Key: object.key}.Spared(in.Applier.Owner.Namespace)
	if s.prunes && !spared && !object.Keep() && !object.liveKeep() {
		verbs = append(verbs, "delete")
	}
	return permissionsFor(object.key, resource, verbs...), nil
}

// reads are the permissions to look at the objects of readyChecks, but for those that the release may give first.
func (s *ClearedStage) reads(ctx context.Context, defined map[schema.GroupKind]string) (tenant.Permissions, error) {
	var needed tenant.Permissions
	for _, check := range s.checks {
		resource, err := s.resource(ctx, check.Kind, defined)
		if err != nil {
			return nil, err
		}
		if resource != "" && !check.given {
			needed = append(needed, permissionsFor(check.Key, resource, "get")...)
		}
	}
	return needed, nil
}

// resource is the resource of a kind; empty if neither the cluster nor the release defines it.
func (s *ClearedStage) resource(
	ctx context.Context, kind schema.GroupVersionKind, defined map[schema.GroupKind]string,
) (string, error) {
	if resource, ours := defined[kind.GroupKind()]; ours {
		return resource, nil // the cluster may not serve the kind yet, and would be believed for a while when it says so
	}
	resource, err := s.target.Resource(ctx, kind)
	if meta.IsNoMatchError(err) {
		return "", nil
	}
	return resource, err
}

// permissionsFor are permissions for one object.
func permissionsFor(key inventory.Key, resource string, verbs ...string) tenant.Permissions {
	needed := make(tenant.Permissions, 0, len(verbs))
	for _, verb := range verbs {
		needed = append(needed, tenant.Permission{
			Verb: verb, Group: key.Group, Resource: resource, Namespace: key.Namespace, Name: key.Name,
		})
	}
	return needed
}

// liveKeep is true when the live object asks never to be deleted.
func (o *Object) liveKeep() bool {
	return o.live != nil && o.live.Annotations[v1.AnnotationPrune] == v1.PruneDisabled
}

// forgiveExisting takes back the lack of create for what exists although no inventory names it: it is only changed.
func (s *ClearedStage) forgiveExisting(ctx context.Context, concurrency int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(concurrency, 1))
	for _, object := range s.objects {
		creates := slices.IndexFunc(object.lacks, func(p tenant.Permission) bool { return p.Verb == "create" })
		if creates < 0 || object.lacks[0].Verb == "get" || object.Deferred() {
			continue
		}
		group.Go(func() error {
			_, err := s.target.Get(ctx, object.Desired().GroupVersionKind(), object.key.Namespace, object.key.Name)
			switch {
			case err == nil:
				object.lacks = slices.Delete(object.lacks, creates, creates+1)
			case !IsRefusal(err):
				return err
			}
			return nil
		})
	}
	return group.Wait()
}

// lack is what the stage's account lacks, but for what the release may give it.
func (s *ClearedStage) lack() lack {
	found := lack{stage: s.name, account: s.account, Permissions: slices.Clone(s.unread)}
	for _, object := range s.objects {
		if object.gift == nil {
			found.Permissions = append(found.Permissions, object.lacks...)
		}
	}
	return found
}

// lacks are the permissions that deleting the entries needs and the account does not have.
func (l Leaving) lacks(ctx context.Context) (tenant.Permissions, error) {
	var needed tenant.Permissions
	for _, entry := range l.Entries {
		resource, err := l.Target.Resource(ctx, inventory.EntryGVK(entry))
		if meta.IsNoMatchError(err) {
			continue // then there is nothing left of it
		}
		if err != nil {
			return nil, err
		}
		needed = append(needed, permissionsFor(inventory.EntryKey(entry), resource, "get", "delete")...)
	}
	return l.Target.Missing(ctx, needed, false)
}

// Permit asks again, and never from memory, for what the stage's account lacked in the preflight, and the release may have
// given before a wave of the stage. Its error is a *failure.Error that names what is still missing; it may pass, since what
// was written a moment ago may not be known everywhere yet.
func (s ClearedStage) Permit(ctx context.Context, wave int) error {
	at := place{stage: s.number, wave: wave}
	found := lack{stage: s.name, account: s.account}
	var asked []*Object
	for _, object := range s.objects {
		if len(object.lacks) > 0 && object.gift.before(at) {
			found.Permissions, asked = append(found.Permissions, object.lacks...), append(asked, object)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	missing, err := s.target.Missing(ctx, found.Permissions, true)
	if err != nil {
		return CannotAsk(s, err)
	}
	if len(missing) > 0 {
		found.Permissions = missing
		return &failure.Error{
			Reason: v1.ReasonPermissionsMissing, Kind: failure.Transient, Stage: s.name, Err: describe([]lack{found}, nil),
		}
	}
	for _, object := range asked {
		object.lacks = nil
	}
	return nil
}

// describe is a message that has what accounts lack before other lines: in all as many lines as a message has, and then how
// many there are more.
func describe(lacks []lack, others []string) error {
	var lines, accounts []string
	for _, lack := range lacks {
		for _, line := range lack.Lines() {
			lines = append(lines, fmt.Sprintf("stage %s: %s", lack.stage, line))
		}
		if account := lack.account.Username(); !slices.Contains(accounts, account) {
			accounts = append(accounts, account)
		}
	}
	lines = append(lines, others...)
	lines = failure.AndMore(lines[:min(len(lines), maxProblems)], len(lines)-maxProblems)
	if len(accounts) > 0 {
		lines = append(lines, fmt.Sprintf("roles have to allow it to %s (\"stagesetctl rbac\" prints them)",
			strings.Join(accounts, ", ")))
	}
	return fmt.Errorf("%s", strings.Join(lines, "; "))
}

package pipeline

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/tenant"
)

// Graph knows what the StageSets of the cluster depend on, whosever they are. It costs no request.
type Graph interface {
	// DependsOn are the StageSets in a StageSet's dependsOn; none if there is no StageSet of the name.
	DependsOn(ctx context.Context, name types.NamespacedName) ([]types.NamespacedName, error)
}

// cycle is a *failure.Error if a StageSet depends on itself, over however many others. The graph finds the way; every
// StageSet on it is then read as the tenant, so that nobody learns more of the others than RBAC lets them. A tenant that
// may not see all of a cycle is told, as always, which of its own dependencies is not ready.
func (p *Pipeline) cycle(ctx context.Context, client *tenant.Reader, set *v1.StageSet) error {
	self := types.NamespacedName{Namespace: set.Namespace, Name: set.Name}
	path, err := pathBack(ctx, p.Graph, self, DependenciesOf(set))
	if err != nil || path == nil {
		return err
	}
	for i, name := range path[1 : len(path)-1] {
		member, err := getDependency(ctx, client, name)
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			return nil
		case err != nil:
			return err
		case !slices.Contains(DependenciesOf(member), path[i+2]):
			return nil // it has just been broken
		}
	}
	texts := make([]string, 0, len(path))
	for _, name := range path {
		texts = append(texts, name.String())
	}
	return failure.NewStalled(v1.ReasonDependencyCycle,
		"spec.dependsOn leads back to this StageSet: %s: remove one of these dependencies", strings.Join(texts, " -> "))
}

// pathBack is a shortest way from a StageSet over its dependencies back to it, both ends included; nil if there is none.
func pathBack(ctx context.Context, graph Graph, self types.NamespacedName, first []types.NamespacedName) (
	[]types.NamespacedName, error,
) {
	before := map[types.NamespacedName]types.NamespacedName{}
	next := func(from types.NamespacedName, to []types.NamespacedName) []types.NamespacedName {
		var fresh []types.NamespacedName
		for _, name := range to {
			if _, seen := before[name]; !seen {
				before[name] = from
				fresh = append(fresh, name)
			}
		}
		return fresh
	}
	for queue := next(self, first); len(queue) > 0; queue = queue[1:] {
		name := queue[0]
		if name == self {
			return trace(before, self), nil
		}
		further, err := graph.DependsOn(ctx, name)
		if err != nil {
			return nil, failure.NewTransient(v1.ReasonDependencyNotReady, "look for cycles in spec.dependsOn: %w", err)
		}
		queue = append(queue, next(name, further)...)
	}
	return nil, nil
}

// trace goes back from self to self.
func trace(before map[types.NamespacedName]types.NamespacedName, self types.NamespacedName) []types.NamespacedName {
	path := []types.NamespacedName{self}
	for name := before[self]; name != self; name = before[name] {
		path = append(path, name)
	}
	path = append(path, self)
	slices.Reverse(path)
	return path
}

// DependenciesOf are the StageSets in a StageSet's dependsOn, namespaces filled in.
func DependenciesOf(set *v1.StageSet) []types.NamespacedName {
	names := make([]types.NamespacedName, 0, len(set.Spec.DependsOn))
	for _, ref := range set.Spec.DependsOn {
		name := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
		if name.Namespace == "" {
			name.Namespace = set.Namespace
		}
		names = append(names, name)
	}
	return names
}

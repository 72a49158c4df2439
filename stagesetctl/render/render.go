package render

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/build"
	"github.com/stageset/stageset/reconciler/dial"
	"github.com/stageset/stageset/reconciler/source"
	"github.com/stageset/stageset/reconciler/workload"
)

// Options say where the content of sources comes from.
type Options struct {
	// Directories have the content of sources, by the source: they are used in place of artifacts.
	Directories map[Source]string
	// Artifacts is where artifacts are from here, in place of the address that a source has in the cluster; nil if they are
	// there.
	Artifacts *url.URL
	// Target is the cluster that spec.kubeConfig leads to; nil if that is not known: then kinds are taken to be there what they
	// are in the StageSet's own.
	Target *Cluster
}

// Source names a source.
type Source struct {
	Kind            v1.SourceKind
	Namespace, Name string
}

// Stage is a rendered stage.
type Stage struct {
	v1.Stage
	// Account is the name of the account that it is applied as; empty if none is named.
	Account string
	// Source is its source; of a producer, the one that its sourceRef names.
	Source Source
	// Objects are placed where they are applied.
	Objects []build.Object
}

// Release is a StageSet with what it applies.
type Release struct {
	// Stages are rendered.
	Stages []Stage

	set *v1.StageSet
	// home is the cluster of the StageSet; target is the one that spec.kubeConfig leads to, nil if that is not known.
	home, target *Cluster
	// leads is what the ConfigMap of spec.kubeConfig says.
	leads workload.Cluster
}

// Release renders all stages of a StageSet.
func (c *Cluster) Release(ctx context.Context, set *v1.StageSet, o Options) (*Release, error) {
	release := &Release{set: set, home: c, target: o.Target}
	if err := release.readConfigMap(ctx); err != nil {
		return nil, err
	}
	renderer, err := newRenderer(c, set, o)
	if err != nil {
		return nil, err
	}
	defer renderer.close()
	manifests := make([]build.Manifests, 0, len(set.Spec.Stages))
	for _, spec := range set.Spec.Stages {
		named := spec.SourceRef.In(set.Namespace)
		stage := Stage{
			Stage: spec, Account: cmp.Or(spec.ServiceAccountName, set.Spec.ServiceAccountName),
			Source: Source{Kind: named.Kind, Namespace: named.Namespace, Name: named.Name},
		}
		built, err := renderer.build(ctx, stage)
		if err != nil {
			return nil, fmt.Errorf("stage %s: %w", spec.Name, err)
		}
		release.Stages, manifests = append(release.Stages, stage), append(manifests, built)
	}
	return release, release.place(manifests)
}

// place puts what was rendered into its namespaces.
func (r *Release) place(manifests []build.Manifests) error {
	scopes := build.FirstKnown(build.RenderedScopes(manifests...), r.in(r.Elsewhere()).scope)
	for i := range r.Stages {
		stage := &r.Stages[i]
		placed, err := build.Place(manifests[i], scopes, build.Placement{
			TargetNamespace: stage.TargetNamespace, DefaultNamespace: r.set.Namespace,
		})
		switch {
		case err != nil && r.Elsewhere() && r.target == nil:
			return fmt.Errorf("stage %s: %w; it may be that only the cluster that spec.kubeConfig leads to knows the kind: "+
				"name that", stage.Name, err)
		case err != nil:
			return fmt.Errorf("stage %s: %w", stage.Name, err)
		}
		stage.Objects = placed.Objects()
	}
	return nil
}

// Elsewhere is true when spec.kubeConfig leads to another cluster.
func (r *Release) Elsewhere() bool { return r.set.Spec.KubeConfig != nil }

// in is the cluster that knows the kinds of one.
func (r *Release) in(elsewhere bool) *Cluster {
	if elsewhere && r.target != nil {
		return r.target
	}
	return r.home
}

// scope says whether objects of a kind have a namespace, as far as the cluster knows the kind.
func (c *Cluster) scope(kind schema.GroupKind) (namespaced, known bool) {
	mapping, err := c.kinds.RESTMapping(kind)
	if err != nil {
		return false, false
	}
	return mapping.Scope.Name() == meta.RESTScopeNameNamespace, true
}

// renderer renders the stages of one StageSet.
type renderer struct {
	cluster  *Cluster
	set      *v1.StageSet
	options  Options
	resolver *source.Resolver
	fetcher  *source.Fetcher
	dir      string
}

// patience is how long a download may take.
const patience = 2 * time.Minute

func newRenderer(c *Cluster, set *v1.StageSet, o Options) (*renderer, error) {
	anywhere, err := source.ParseHosts([]string{"*"})
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "stagesetctl-")
	if err != nil {
		return nil, err
	}
	// Whoever runs the command may connect to wherever they like: the addresses are no tenant's.
	all := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	fetcher, err := source.NewFetcher(source.FetcherOptions{
		Dir: dir, Transport: dial.New(all).Transport(), Hosts: anywhere, Timeout: patience, Patience: patience,
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &renderer{
		cluster: c, set: set, options: o, resolver: source.NewResolver(anywhere), fetcher: fetcher, dir: dir,
	}, nil
}

// close forgets what was downloaded. What cannot be removed is in a directory for what is temporary.
func (r *renderer) close() {
	_ = r.fetcher.Close()
	_ = os.RemoveAll(r.dir)
}

// build renders one stage.
func (r *renderer) build(ctx context.Context, stage Stage) (build.Manifests, error) {
	variables, err := r.variables(ctx, stage.PostBuild)
	if err != nil {
		return build.Manifests{}, err
	}
	content, done, err := r.content(ctx, stage)
	if err != nil {
		return build.Manifests{}, err
	}
	defer done()
	return build.Build(ctx, content, build.OptionsOf(stage.Stage, variables))
}

// content is what the source of a stage has; done ends reading it.
func (r *renderer) content(ctx context.Context, stage Stage) (content fs.FS, done func(), err error) {
	if directory, given := r.options.Directories[stage.Source]; given {
		root, err := os.OpenRoot(directory)
		if err != nil {
			return nil, nil, err
		}
		return root.FS(), func() { _ = root.Close() }, nil
	}
	pin, err := r.resolver.Resolve(ctx, r.cluster, stage.SourceRef, r.set.Namespace)
	if err != nil {
		return nil, nil, err
	}
	if server := r.options.Artifacts; server != nil {
		address, err := url.Parse(pin.URL)
		if err != nil {
			return nil, nil, fmt.Errorf("the address of the artifact of %s is no URL", pin)
		}
		address.Scheme, address.Host = server.Scheme, server.Host
		pin.URL = address.String()
	}
	artifact, err := r.fetcher.Fetch(ctx, types.NamespacedName{Namespace: r.set.Namespace, Name: r.set.Name}, pin)
	if err != nil {
		return nil, nil, err
	}
	return artifact.FS(), func() { _ = artifact.Close() }, nil
}

// variables are those of a postBuild; nil if there is none.
func (r *renderer) variables(ctx context.Context, spec *v1.PostBuild) (build.Variables, error) {
	if spec == nil {
		return nil, nil
	}
	variables := build.Variables{}
	for _, ref := range spec.SubstituteFrom {
		gvk := schema.GroupVersionKind{Version: "v1", Kind: string(ref.Kind)}
		object, err := r.cluster.Get(ctx, gvk, r.set.Namespace, ref.Name)
		switch {
		case apierrors.IsNotFound(err) && ref.Optional:
			continue
		case err != nil:
			return nil, fmt.Errorf("substituteFrom: %w", err)
		}
		maps.Copy(variables, valuesOf(ref.Kind, object))
	}
	for name, value := range spec.Substitute {
		variables[name] = build.Variable{Value: value}
	}
	return variables, nil
}

// valuesOf are the entries of a ConfigMap or Secret that manifests can refer to.
func valuesOf(kind v1.SubstituteKind, object *unstructured.Unstructured) build.Variables {
	data, _, _ := unstructured.NestedStringMap(object.Object, "data")
	values := build.Variables{}
	for name, value := range data {
		if !build.IsVariableName(name) {
			continue
		}
		secret := kind == v1.SubstituteSecret
		if decoded, err := base64.StdEncoding.DecodeString(value); secret && err == nil {
			value = string(decoded)
		}
		values[name] = build.Variable{Value: value, Secret: secret}
	}
	return values
}

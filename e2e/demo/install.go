package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stageset/stageset/api/crds"
	v1 "github.com/stageset/stageset/api/v1"
)

// Names that the files in manifests and the chart use.
const (
	system   = "stageset-system"
	team     = "team-a"
	deployer = "deployer" // the tenant's account
)

// chartFiles is the folder of what the chart installs.
const chartFiles = "charts/stageset/files"

// Kinds that are used without their Go types.
var (
	kindNamespace     = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	kindAccount       = schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}
	kindCRD           = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	kindClusterRole   = schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}
	kindGitRepository = schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "GitRepository"}
)

//go:embed manifests
var manifests embed.FS

// connect looks whether the demo can use the cluster of --kubeconfig. It takes over nothing that is there.
func (d *demo) connect(ctx context.Context) (string, error) {
	var err error
	if d.admin, err = newAdmin(d.kubeconfig); err != nil {
		return "", err
	}
	detail, err := d.admin.describe()
	if err != nil {
		return "", err
	}
	others, err := d.admin.belongsToOthers(ctx,
		reference(kindCRD, "", "stagesets.stages.metio.wtf"),
		reference(kindCRD, "", "gitrepositories.source.toolkit.fluxcd.io"),
		reference(kindNamespace, "", system),
		reference(kindNamespace, "", "flux-system"),
		reference(kindNamespace, "", team),
	)
	if err != nil {
		return "", err
	}
	if len(others) > 0 {
		d.admin = nil // nothing is to be taken back
		return "", fmt.Errorf("this cluster has %s already. The demo installs all of that itself, and removes it at its end: "+
			"it needs a cluster without Flux and without StageSet", strings.Join(others, ", "))
	}
	return detail, nil
}

// install makes what the chart would, and an account for source-controller.
func (d *demo) install(ctx context.Context) (string, error) {
	chart := os.DirFS(filepath.Join(d.root, chartFiles))
	for _, files := range []struct {
		in      fs.FS
		pattern string
	}{
		{crds.FS, "*.yaml"},
		{os.DirFS(d.binary("source-controller-crds")), "*.yaml"},
		{manifests, "manifests/installation.yaml"},
		{chart, "*-rbac.yaml"},
		{chart, "aggregate-*.yaml"},
	} {
		if err := d.admin.applyFiles(ctx, files.in, files.pattern); err != nil {
			return "", err
		}
	}
	config, err := manifests.ReadFile("manifests/policy-config.yaml")
	if err != nil {
		return "", err
	}
	if _, err := d.write("policy-config.yaml", config); err != nil {
		return "", err
	}
	for _, object := range d.admin.applied {
		if object.GroupVersionKind() == kindCRD {
			if err := d.admin.hasCondition(ctx, reference(kindCRD, "", object.GetName()), "Established"); err != nil {
				return "", err
			}
		}
	}
	return "roles from " + chartFiles, d.awaitAggregation(ctx)
}

// applyFiles applies the files that match, of which there must be one.
func (a *admin) applyFiles(ctx context.Context, in fs.FS, pattern string) error {
	files, err := fs.Glob(in, pattern)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("there is no file %s to install", pattern)
	}
	if err != nil {
		return err
	}
	for _, file := range files {
		content, err := fs.ReadFile(in, file)
		if err != nil {
			return err
		}
		if err := a.apply(ctx, content); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// awaitAggregation waits until a controller of the cluster has added the product's rules to the role edit.
func (d *demo) awaitAggregation(ctx context.Context) error {
	edit := reference(kindClusterRole, "", "edit")
	return d.admin.waitFor(ctx, edit, func() error {
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(edit.Object, &role); err != nil {
			return err
		}
		for _, rule := range role.Rules {
			if len(rule.APIGroups) > 0 && rule.APIGroups[0] == v1.GroupVersion.Group {
				return nil
			}
		}
		return errors.New("it does not have the rules of aggregate-edit.yaml yet")
	})
}

// serviceReference is where the chart's webhook configurations name a Service.
var serviceReference = regexp.MustCompile(`(?m)service: \{.* path: (\S+)\}$`)

// installWebhooks applies the chart's webhook configurations, with an address of this machine for the Service.
func (d *demo) installWebhooks(ctx context.Context, port string) error {
	content, err := os.ReadFile(filepath.Join(d.root, chartFiles, "admission-webhooks.yaml"))
	if err != nil {
		return err
	}
	return d.admin.apply(ctx, serviceReference.ReplaceAll(content, []byte("url: https://localhost:"+port+"$1")))
}

package render

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stageset/stageset/reconciler/permissions"
	"github.com/stageset/stageset/reconciler/workload"
)

// readConfigMap reads what spec.kubeConfig.configMapRef names: it says whose token leads to the other cluster. Of a Secret
// nothing has to be known.
func (r *Release) readConfigMap(ctx context.Context) error {
	if !r.Elsewhere() || r.set.Spec.KubeConfig.ConfigMapRef == nil {
		return nil
	}
	name := r.set.Spec.KubeConfig.ConfigMapRef.Name
	failed := func(err error) error {
		return fmt.Errorf("spec.kubeConfig: ConfigMap %s/%s: %w", r.set.Namespace, name, err)
	}
	object, err := r.home.Get(ctx, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, r.set.Namespace, name)
	if err != nil {
		return failed(err)
	}
	data, _, err := unstructured.NestedStringMap(object.Object, "data")
	if err != nil {
		return failed(err)
	}
	r.leads, err = workload.Parse(data)
	switch {
	case err != nil:
		return failed(err)
	case r.leads.ServiceAccount == "":
		return failed(errors.New("serviceAccountName is not set: no token leads to the other cluster"))
	case r.set.Spec.ServiceAccountName == "":
		return errors.New("spec.kubeConfig.configMapRef is read as spec.serviceAccountName: set it")
	}
	return nil
}

// kubeConfig is what spec.kubeConfig needs: its object is read, and whose token leads there may be used, here; there, the
// user that it leads to is taken for the accounts of the stages.
func (n *needs) kubeConfig() {
	if !n.Elsewhere() {
		return
	}
	reader := who{account: n.set.Spec.ServiceAccountName}
	core := func(kind string) schema.GroupKind { return schema.GroupKind{Kind: kind} }
	if ref := n.set.Spec.KubeConfig.SecretRef; ref != nil {
		n.read(reader, core("Secret"), n.set.Namespace, ref.Name)
	}
	if ref := n.set.Spec.KubeConfig.ConfigMapRef; ref != nil {
		n.read(reader, core("ConfigMap"), n.set.Namespace, ref.Name)
		if n.leads.Cloud != "" { // whose name for the account is in its annotations
			n.read(reader, core("ServiceAccount"), n.set.Namespace, n.leads.ServiceAccount)
		}
		if n.leads.ServiceAccount != reader.account {
			n.impersonates(reader, n.leads.ServiceAccount)
		}
	}
	for _, stage := range n.Stages {
		if stage.Account != "" {
			n.impersonates(who{elsewhere: true}, stage.Account)
		}
	}
}

// impersonates is the permission to be taken for an account of the StageSet's namespace.
func (n *needs) impersonates(by who, account string) {
	n.add(by, false, permissions.Of(permissions.Permission{
		Resource: "serviceaccounts", Namespace: n.set.Namespace, Name: account,
	}, "impersonate"))
}

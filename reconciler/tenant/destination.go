package tenant

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/kubeconfig"
)

// ErrGone is in the chain of errors of Clients.Destination when the reference does not lead to the cluster any more: there
// is nothing at its end, or another server.
var ErrGone = errors.New("it does not lead there any more")

// Reference says what leads to a cluster, and who reads it.
type Reference struct {
	// Reader is the account that reads what KubeConfig names, in its own namespace.
	Reader Account
	// KubeConfig names what leads to another cluster; the zero value stands for the cluster that StageSets are in.
	KubeConfig v1.InventoryKubeConfig
	// Cluster is where it has to lead to, as inventories name it; empty is wherever it does.
	Cluster string
}

// ReferenceOf is what the spec of a StageSet says about its target. The error is InvalidSpec (Stalled).
func ReferenceOf(set *v1.StageSet) (Reference, error) {
	reference := Reference{Reader: Account{Namespace: set.Namespace, Name: set.Spec.ServiceAccountName}}
	spec := set.Spec.KubeConfig
	switch {
	case spec == nil:
		return reference, nil
	case spec.SecretRef != nil && spec.ConfigMapRef != nil:
		return Reference{}, failure.NewStalled(v1.ReasonInvalidSpec,
			"spec.kubeConfig has secretRef and configMapRef: remove one of them")
	case spec.SecretRef != nil && spec.SecretRef.Name != "":
		reference.KubeConfig = v1.InventoryKubeConfig{
			Kind: v1.KubeConfigSecret, Name: spec.SecretRef.Name, Key: spec.SecretRef.Key,
		}
	case spec.ConfigMapRef != nil && spec.ConfigMapRef.Name != "":
		reference.KubeConfig = v1.InventoryKubeConfig{Kind: v1.KubeConfigConfigMap, Name: spec.ConfigMapRef.Name}
	default:
		return Reference{}, failure.NewStalled(v1.ReasonInvalidSpec,
			"spec.kubeConfig names nothing: set secretRef.name or configMapRef.name")
	}
	return reference, nil
}

// Recorded is the reference to the target of an inventory, read as the account of its StageSet.
func Recorded(reader Account, target v1.InventoryTarget) Reference {
	return Reference{Reader: reader, KubeConfig: target.KubeConfig, Cluster: target.Cluster}
}

// Destination is a cluster that objects are applied to. The zero value is the cluster that StageSets are in.
type Destination struct {
	kubeConfig v1.InventoryKubeConfig
	access     kubeconfig.Access
	// token proves who asks where nothing in access does.
	token grant
}

// Remote is true for another cluster than the one that StageSets are in.
func (d Destination) Remote() bool { return d.kubeConfig != v1.InventoryKubeConfig{} }

// Cluster is the cluster as inventories name it.
func (d Destination) Cluster() string {
	if !d.Remote() {
		return v1.ClusterLocal
	}
	return d.access.Cluster()
}

// Target is the cluster, and an account on it, as inventories record them.
func (d Destination) Target(account string) v1.InventoryTarget {
	return v1.InventoryTarget{Cluster: d.Cluster(), KubeConfig: d.kubeConfig, ServiceAccountName: account}
}

// Access changes with how the cluster is reached and with what proves who asks; it tells nothing of either.
func (d Destination) Access() string {
	if !d.Remote() {
		return ""
	}
	sum := sha256.Sum256([]byte(d.access.Hash() + d.token.String()))
	return hex.EncodeToString(sum[:])
}

// Destination finds a cluster, and reads what leads there as the reference's account. It sends nothing to the cluster
// itself.
//
// Every error is a *failure.Error: those of Local; ServiceAccountRequired (Stalled) for a ConfigMap that no account reads;
// AccessDenied (Stalled) if it may not read, or not use the account that a ConfigMap names; InvalidSpec (Stalled) for what a
// ConfigMap says; KubeConfigInvalid (Stalled) if what is there cannot be used, with ErrGone in its chain if it leads nowhere,
// or to another cluster than it has to.
func (c *Clients) Destination(ctx context.Context, reference Reference) (Destination, error) {
	if reference.KubeConfig == (v1.InventoryKubeConfig{}) {
		return Destination{}, nil
	}
	reader, err := c.readerOf(ctx, reference)
	if err != nil {
		return Destination{}, err
	}
	to := Destination{kubeConfig: reference.KubeConfig}
	if to.access, to.token, err = c.access(ctx, reader, reference.KubeConfig); err != nil {
		return Destination{}, err
	}
	if reference.Cluster != "" && reference.Cluster != to.access.Cluster() {
		return Destination{}, invalid(reader, reference.KubeConfig, fmt.Errorf("it leads to %s now: %w", to.access, ErrGone))
	}
	if err := c.admit(to.access); err != nil {
		return Destination{}, invalid(reader, reference.KubeConfig, err)
	}
	return to, nil
}

// readerOf reads what the reference names. The reconciler itself, where it may, reads kubeconfigs only: whose token a
// ConfigMap may lead to is decided by what its reader may do, and the reconciler may have them all.
func (c *Clients) readerOf(ctx context.Context, reference Reference) (*Reader, error) {
	if reference.Reader.IsOwn() && reference.KubeConfig.Kind == v1.KubeConfigConfigMap {
		return nil, failure.NewStalled(v1.ReasonServiceAccountRequired, "spec.kubeConfig.configMapRef is read as "+
			"spec.serviceAccountName, whose rights say whose token is used; the reconciler's own identity never is: set it")
	}
	reader, err := c.Local(ctx, reference.Reader)
	if err != nil && failure.From(err).Reason == v1.ReasonServiceAccountRequired {
		return nil, failure.NewStalled(v1.ReasonServiceAccountRequired,
			"spec.kubeConfig is read as spec.serviceAccountName: set it: %w", err)
	}
	return reader, err
}

// access reads what leads to a cluster, and what proves there who asks: something in the access, or a token that is looked
// up for every request. Every kind of object that a kubeConfig can name has its case.
func (c *Clients) access(
	ctx context.Context, reader *Reader, from v1.InventoryKubeConfig,
) (kubeconfig.Access, grant, error) {
	switch from.Kind {
	case v1.KubeConfigSecret:
		access, err := c.accessBySecret(ctx, reader, from)
		return access, grant{}, err
	case v1.KubeConfigConfigMap:
		return c.accessByConfigMap(ctx, reader, from)
	default:
		return kubeconfig.Access{}, grant{}, failure.NewStalled(v1.ReasonInvalidSpec,
			"a kubeConfig of kind %q is not known", from.Kind)
	}
}

// accessBySecret reads a Secret that holds a kubeconfig.
func (c *Clients) accessBySecret(
	ctx context.Context, reader *Reader, from v1.InventoryKubeConfig,
) (kubeconfig.Access, error) {
	object, err := c.readReference(ctx, reader, from)
	if err != nil {
		return kubeconfig.Access{}, err
	}
	content, err := selectKey(object, from.Key)
	if err != nil {
		return kubeconfig.Access{}, invalid(reader, from, err)
	}
	access, err := kubeconfig.Parse(content, kubeconfig.Options{InsecureTLS: c.insecureTLS})
	if err != nil {
		return kubeconfig.Access{}, invalid(reader, from, err)
	}
	return access, nil
}

// selectKey is the kubeconfig in a Secret.
func selectKey(secret *unstructured.Unstructured, key string) ([]byte, error) {
	data, _, err := unstructured.NestedStringMap(secret.Object, "data")
	if err != nil {
		return nil, errors.New("its data is no map of texts")
	}
	entries := make(map[string][]byte, len(data))
	for name, value := range data {
		if entries[name], err = base64.StdEncoding.DecodeString(value); err != nil {
			return nil, fmt.Errorf("data.%s is not base64", name)
		}
	}
	return kubeconfig.Select(entries, key)
}

// readReference reads the object that a kubeConfig names.
func (c *Clients) readReference(
	ctx context.Context, reader *Reader, from v1.InventoryKubeConfig,
) (*unstructured.Unstructured, error) {
	gvk, namespace := schema.GroupVersionKind{Version: "v1", Kind: from.Kind}, reader.Account().Namespace
	object, err := reader.Get(ctx, gvk, namespace, from.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, invalid(reader, from, fmt.Errorf("there is none: create it, or correct spec.kubeConfig (%w)", ErrGone))
	case apierrors.IsForbidden(err):
		return nil, failure.NewStalled(v1.ReasonAccessDenied, "kubeConfig: %s may not get %s: grant it get on %s named %s in "+
			"namespace %s", reader.Identity(), describe(reader, from), referenced[from.Kind], from.Name, namespace)
	}
	return object, Explain(err, fmt.Sprintf("kubeConfig: get %s as %s", describe(reader, from), reader.Identity()),
		Reasons{Refused: v1.ReasonKubeConfigInvalid})
}

// referenced are the kinds that a kubeConfig can name, as permissions name them.
var referenced = map[string]string{v1.KubeConfigSecret: "secrets", v1.KubeConfigConfigMap: "configmaps"}

// describe is what a kubeConfig names, as messages have it.
func describe(reader *Reader, from v1.InventoryKubeConfig) string {
	text := fmt.Sprintf("%s %s/%s", from.Kind, reader.Account().Namespace, from.Name)
	if from.Key != "" {
		text += ", key " + from.Key
	}
	return text
}

func invalid(reader *Reader, from v1.InventoryKubeConfig, err error) error {
	return failure.NewStalled(v1.ReasonKubeConfigInvalid, "kubeConfig: %s: %w", describe(reader, from), err)
}

// admit refuses addresses, where they are written as such, that a tenant may not have the reconciler connect to. What names
// lead to is found out when they are resolved; by a proxy, it alone knows.
func (c *Clients) admit(access kubeconfig.Access) error {
	for _, field := range []struct{ name, address string }{{"server", access.Server}, {"proxy-url", access.Proxy}} {
		if field.address == "" {
			continue
		}
		address, err := url.Parse(field.address)
		if err != nil {
			return fmt.Errorf("its %s is not a URL", field.name)
		}
		if err := c.remotes.dialer.CheckHost(address.Hostname()); err != nil {
			return fmt.Errorf("its %s: %w", field.name, err)
		}
	}
	return nil
}

package tenant

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/kubeconfig"
	"github.com/stageset/stageset/reconciler/workload"
)

// accessByConfigMap reads a ConfigMap that says where a cluster is and whose token it takes. Nothing in it leads to an
// identity of the reconciler, to an account that the reader could not be by itself, or to a token that the API server
// here would take: the address may be anybody's, who then has the token.
func (c *Clients) accessByConfigMap(
	ctx context.Context, reader *Reader, from v1.InventoryKubeConfig,
) (kubeconfig.Access, grant, error) {
	object, err := c.readReference(ctx, reader, from)
	if err != nil {
		return kubeconfig.Access{}, grant{}, err
	}
	cluster, err := readCluster(object)
	if err == nil {
		err = c.checkAudiences(ctx, reader.Account(), cluster.Audiences)
	}
	if err == nil {
		err = checkAccount(ctx, reader, cluster.ServiceAccount)
	}
	var access kubeconfig.Access
	var token grant
	if err == nil {
		access, token, err = c.found(ctx, reader, cluster)
	}
	if err != nil {
		failed := *failure.From(err) // which others may wait for too
		failed.Err = fmt.Errorf("kubeConfig: %s: %w", describe(reader, from), failed.Err)
		return kubeconfig.Access{}, grant{}, &failed
	}
	return access, token, nil
}

// found is where the cluster is, and the token that it takes. A cloud says both when it exchanges the token.
func (c *Clients) found(ctx context.Context, reader *Reader, cluster workload.Cluster) (kubeconfig.Access, grant, error) {
	account := Account{Namespace: reader.Account().Namespace, Name: cluster.ServiceAccount}
	of := grant{account: account, audiences: strings.Join(cluster.Audiences, "\n")}
	if account == reader.Account() {
		local, err := c.tokens.get(ctx, grant{account: account}) // what the ConfigMap was read with
		if err != nil {
			return kubeconfig.Access{}, grant{}, Explain(err, "find out which ServiceAccount "+account.String()+" is", Reasons{})
		}
		of.uid = local.uid
	}
	if cluster.Cloud == "" {
		return kubeconfig.Access{Server: cluster.Server, CA: cluster.CA}, of, nil
	}
	of.cloud = exchange{
		provider: cluster.Cloud, cluster: cluster.Resource, address: cluster.Server, ca: cluster.CA, reader: reader.Account(),
	}
	token, err := c.tokenAbroad(ctx, of)
	if err != nil {
		return kubeconfig.Access{}, grant{}, Explain(err, "wait for "+cluster.Cloud, Reasons{})
	}
	return kubeconfig.Access{Server: token.server, CA: token.ca}, of, nil
}

func readCluster(object *unstructured.Unstructured) (workload.Cluster, error) {
	data, _, err := unstructured.NestedStringMap(object.Object, "data")
	if err != nil {
		return workload.Cluster{}, failure.NewStalled(v1.ReasonInvalidSpec, "its data is no map of texts")
	}
	if object.Object["binaryData"] != nil {
		return workload.Cluster{}, failure.NewStalled(v1.ReasonInvalidSpec, "it has binaryData: all of it belongs in data")
	}
	cluster, err := workload.Parse(data)
	if err != nil {
		return workload.Cluster{}, failure.NewStalled(v1.ReasonInvalidSpec, "%w", err)
	}
	return cluster, nil
}

// checkAudiences keeps tokens here that the API server here would take. What it calls itself is in the token that the
// reader has of it, with its issuer, which it is usually called too.
func (c *Clients) checkAudiences(ctx context.Context, reader Account, audiences []string) error {
	local, err := c.tokens.get(ctx, grant{account: reader})
	if err != nil {
		return Explain(err, "find out what this API server is called", Reasons{})
	}
	for _, audience := range audiences {
		if slices.Contains(local.audiences, audience) {
			return failure.NewStalled(v1.ReasonInvalidSpec, "audiences has %q, which is the API server of this cluster: whoever "+
				"is at the address could be the account here; name what the other cluster is called", audience)
		}
	}
	return nil
}

// checkAccount lets the reader's account be used, and every other one that it could be anyway.
func checkAccount(ctx context.Context, reader *Reader, name string) error {
	switch name {
	case "":
		return failure.NewStalled(v1.ReasonAccessDenied, "serviceAccountName is not set, and the reconciler's own identity is "+
			"not used for that: set it")
	case reader.Account().Name:
		return nil
	}
	namespace := reader.Account().Namespace
	for _, way := range (Permissions{
		{Verb: "impersonate", Resource: "serviceaccounts", Namespace: namespace, Name: name},
		{Verb: "create", Resource: "serviceaccounts/token", Namespace: namespace, Name: name},
	}) {
		allowed, err := asker{reader.client}.Allowed(ctx, way)
		if err != nil {
			return Explain(err, fmt.Sprintf("serviceAccountName: ask whether %s may be used", name), Reasons{})
		}
		if allowed {
			return nil
		}
	}
	return failure.NewStalled(v1.ReasonAccessDenied, "serviceAccountName is %s, which %s may not use: grant it impersonate on "+
		"serviceaccounts named %s in namespace %s, or name its own", name, reader.Identity(), name, namespace)
}

package main

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tokenLifetime is longer than anybody looks around; a cluster may give less.
const tokenLifetime = 7 * 24 * time.Hour

// token is one of the service account, which must exist.
func (a *admin) token(ctx context.Context, namespace, account string) (string, error) {
	seconds := int64(tokenLifetime.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	subject := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	if err := a.SubResource("token").Create(ctx, subject, request); err != nil {
		return "", fmt.Errorf("requesting a token of service account %s/%s: %w", namespace, account, err)
	}
	return request.Status.Token, nil
}

// kubeconfigOf is where accountKubeconfig writes.
func (d *demo) kubeconfigOf(namespace, account string) string {
	return d.file("kubeconfigs", namespace+"-"+account)
}

// accountKubeconfig writes a kubeconfig with a token of the account, and nothing else of the administrator's.
func (d *demo) accountKubeconfig(ctx context.Context, namespace, account string) (string, error) {
	token, err := d.admin.token(ctx, namespace, account)
	if err != nil {
		return "", err
	}
	name := namespace + "-" + account
	config, path := clientcmdapi.NewConfig(), d.kubeconfigOf(namespace, account)
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   d.admin.config.Host,
		CertificateAuthority:     d.admin.config.CAFile,
		CertificateAuthorityData: d.admin.config.CAData,
		TLSServerName:            d.admin.config.ServerName,
		InsecureSkipTLSVerify:    d.admin.config.Insecure,
	}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	config.CurrentContext = name
	return path, clientcmd.WriteToFile(*config, path)
}

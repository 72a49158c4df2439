package up

import (
	"bytes"
	"crypto/rand"
	"encoding/csv"
	"errors"
	"fmt"
	"net"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Files of the directory that hold keys and tokens.
const (
	authority          = "keys/ca.crt"
	servingCertificate = "keys/apiserver.crt"
	servingKey         = "keys/apiserver.key"
	accountKey         = "keys/service-account.key"
	tokenFile          = "keys/tokens.csv"
)

// The users who have a static token. Each component has its own, so that the audit log tells who asked.
const (
	userAdmin             = "admin"
	userControllerManager = "system:kube-controller-manager"
	userScheduler         = "system:kube-scheduler"
	userKWOK              = "kwok"
)

// groups of each user; those without are bound by the roles that every apiserver makes for its components.
var groups = map[string]string{
	userAdmin:             "system:masters",
	userControllerManager: "",
	userScheduler:         "",
	userKWOK:              "system:masters",
}

// credentials are what clients need to speak to the apiserver.
type credentials struct {
	authority []byte            // PEM, trusted by every client
	tokens    map[string]string // by user
}

// loadCredentials reads what an earlier start made, and makes what is missing.
func loadCredentials(d *directory) (credentials, error) {
	chain, err := d.once(servingCertificate, func() ([]byte, error) {
		names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
		chain, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{serviceIP}, names)
		if err != nil {
			return nil, err
		}
		return chain, d.write(servingKey, key)
	})
	if err != nil {
		return credentials{}, fmt.Errorf("the apiserver's certificate: %w", err)
	}
	issuer, err := d.once(authority, func() ([]byte, error) { return issuerOf(chain) })
	if err != nil {
		return credentials{}, fmt.Errorf("the issuer of the apiserver's certificate: %w", err)
	}
	if _, err := d.once(accountKey, keyutil.MakeEllipticPrivateKeyPEM); err != nil {
		return credentials{}, fmt.Errorf("the key of service account tokens: %w", err)
	}
	content, err := d.once(tokenFile, makeTokens)
	if err != nil {
		return credentials{}, fmt.Errorf("the tokens of the administrator and the components: %w", err)
	}
	tokens, err := parseTokens(content)
	if err != nil {
		return credentials{}, fmt.Errorf("%s: %w", d.file(tokenFile), err)
	}
	return credentials{authority: issuer, tokens: tokens}, nil
}

// issuerOf is the last certificate of a chain: what Kubernetes distributes as trusted may only be authorities.
func issuerOf(chain []byte) ([]byte, error) {
	certificates, err := certutil.ParseCertsPEM(chain)
	if err != nil {
		return nil, err
	}
	return certutil.EncodeCertificates(certificates[len(certificates)-1])
}

// makeTokens writes the apiserver's format: token, user, UID, groups.
func makeTokens() ([]byte, error) {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	for user, group := range groups {
		if err := w.Write([]string{rand.Text(), user, user, group}); err != nil {
			return nil, err
		}
	}
	w.Flush()
	return out.Bytes(), w.Error()
}

func parseTokens(content []byte) (map[string]string, error) {
	r := csv.NewReader(bytes.NewReader(content))
	r.FieldsPerRecord = 4
	records, err := r.ReadAll()
	if err != nil {
		return nil, err
	}
	tokens := make(map[string]string, len(records))
	for _, record := range records {
		tokens[record[1]] = record[0]
	}
	for user := range groups {
		if tokens[user] == "" {
			return nil, fmt.Errorf("no token for user %s: the directory is of another version, use a new one", user)
		}
	}
	return tokens, nil
}

// contextName is the name of cluster and context in every kubeconfig that this package writes.
const contextName = "controlplane"

// writeKubeconfig writes a kubeconfig of the user, readable by the owner alone. It replaces none but its own: a path
// given by mistake may hold the only key to another cluster.
func (c credentials) writeKubeconfig(path, user string, port int) error {
	present, err := clientcmd.LoadFromFile(path)
	if err == nil && present.CurrentContext != contextName {
		return fmt.Errorf("%s is a kubeconfig of something else (its context is %q): name another file with --kubeconfig",
			path, present.CurrentContext)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is there and is no kubeconfig: name another file with --kubeconfig (%w)", path, err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[contextName] = &clientcmdapi.Cluster{Server: server(port), CertificateAuthorityData: c.authority}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: c.tokens[user]}
	config.Contexts[contextName] = &clientcmdapi.Context{Cluster: contextName, AuthInfo: user}
	config.CurrentContext = contextName
	return clientcmd.WriteToFile(*config, path)
}

// admin is the administrator's client configuration, without a client-side limit.
func (c credentials) admin(port int) *rest.Config {
	return &rest.Config{
		Host:            server(port),
		BearerToken:     c.tokens[userAdmin],
		TLSClientConfig: rest.TLSClientConfig{CAData: c.authority},
		QPS:             -1,
	}
}

func server(port int) string {
	return fmt.Sprintf("https://127.0.0.1:%d", port)
}

package kubeconfig

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
)

// Access is how an API server is reached, and what proves who asks. It holds secrets: String shows none of them.
type Access struct {
	// Server is the URL of the API server: https, host in lower case, no port if it is 443, no slash at the end.
	Server string
	// ServerName is the name in the server's certificate; empty is the host of Server.
	ServerName string
	// CA are the certificates, in PEM, that the server's is verified by; none are those of the system.
	CA string
	// Insecure leaves the server's certificate unverified.
	Insecure bool
	// Proxy is the URL of an HTTP, HTTPS or SOCKS5 proxy on the way, with its credentials; empty if there is none.
	Proxy string

	// Token is a bearer token.
	Token string
	// Username and Password are for servers that take them.
	Username, Password string
	// Certificate and Key are a client certificate and its key, in PEM.
	Certificate, Key string
}

// String is the server's address and nothing else.
func (a Access) String() string { return a.Server }

// GoString is String: what is printed for debugging shows no secrets either.
func (a Access) GoString() string { return a.String() }

// Cluster is the name of the cluster in inventories: the SHA-256 of the server's URL, in hexadecimal. A CA or credentials
// that are replaced do not change it.
func (a Access) Cluster() string {
	sum := sha256.Sum256([]byte(a.Server))
	return hex.EncodeToString(sum[:])
}

// Connection is equal for what can use the same connections: the same server, reached in the same way, verified by the same
// CA, with the same client certificate.
func (a Access) Connection() string {
	a.Token, a.Username, a.Password = "", "", ""
	return a.Hash()
}

// Endpoint is equal for what leads to the same server, whoever asks: what one learns there of the server holds for all.
func (a Access) Endpoint() string {
	a.Certificate, a.Key = "", ""
	return a.Connection()
}

// Hash is equal for equal values.
func (a Access) Hash() string {
	text, err := json.Marshal(a)
	if err != nil {
		panic(err) // a struct of texts
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// cluster reads how the server is reached.
func (r *reader) cluster(of part, access *Access) {
	if of.fields == nil {
		return
	}
	access.Server = r.server(of)
	access.ServerName = r.text(of, "tls-server-name")
	access.Proxy = r.proxy(of)
	insecure := of.fields["insecure-skip-tls-verify"]
	if insecure != nil && !(insecure == true && r.options.InsecureTLS) {
		r.problem(of, "insecure-skip-tls-verify", "would take any server for the right one: set certificate-authority-data, or "+
			"have the reconciler run with --insecure-kubeconfig-tls")
	}
	access.Insecure = insecure == true
	access.CA = r.data(of, "certificate-authority-data")
	if len(access.CA) > 0 && !x509.NewCertPool().AppendCertsFromPEM([]byte(access.CA)) {
		r.problem(of, "certificate-authority-data", "has no certificate in PEM")
	}
}

// server is the canonical form of the server's URL.
func (r *reader) server(of part) string {
	server, err := Server(r.text(of, "server"))
	if err != nil {
		r.problem(of, "server", err.Error())
	}
	return server
}

// Server is the canonical form of the URL of an API server, as Access has it. The error continues a sentence that begins
// with what the text is the value of.
func Server(text string) (string, error) {
	address, err := url.Parse(text)
	if err != nil || address.Scheme != "https" || address.Hostname() == "" || address.User != nil ||
		address.RawQuery != "" || address.Fragment != "" {
		return "", errors.New("is not a URL such as https://api.example.com:6443")
	}
	host := strings.ToLower(address.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port := address.Port(); port != "" && port != "443" {
		host += ":" + port
	}
	return (&url.URL{Scheme: "https", Host: host, Path: strings.TrimRight(address.Path, "/")}).String(), nil
}

// proxy is the URL of the proxy.
func (r *reader) proxy(of part) string {
	text := r.text(of, "proxy-url")
	if text == "" {
		return ""
	}
	address, err := url.Parse(text)
	if err != nil || !slices.Contains([]string{"http", "https", "socks5"}, address.Scheme) || address.Hostname() == "" {
		r.problem(of, "proxy-url", "is not a URL of a proxy, http, https or socks5")
		return ""
	}
	return address.String()
}

// user reads what proves who asks.
func (r *reader) user(of part, access *Access) {
	if of.fields == nil {
		return
	}
	access.Token = r.text(of, "token")
	if strings.ContainsFunc(access.Token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		r.problem(of, "token", "has a character that no token has")
	}
	access.Username, access.Password = r.text(of, "username"), r.text(of, "password")
	access.Certificate, access.Key = r.data(of, "client-certificate-data"), r.data(of, "client-key-data")
	certified := len(access.Certificate)+len(access.Key) > 0
	if certified {
		if _, err := tls.X509KeyPair([]byte(access.Certificate), []byte(access.Key)); err != nil {
			r.problem(of, "client-certificate-data", "and client-key-data are no certificate, in PEM, with its key")
		}
	}
	switch {
	case access.Token != "" && access.Username != "":
		r.problem(of, "token", "and username are both set: remove one")
	case access.Token == "" && access.Username == "" && !certified:
		r.problem(of, "token", "is not set, nor a client certificate: nothing says who asks")
	}
}

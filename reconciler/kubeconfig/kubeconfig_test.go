package kubeconfig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// secret is in all tests what must not be in an error.
const secret = "hunter2-is-the-token"

// file is a kubeconfig whose cluster and user have these fields, in YAML.
func file(cluster, user string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Config
preferences: {}
clusters: [{name: there, cluster: {%s}}]
users: [{name: hub, user: {%s}}]
contexts: [{name: main, context: {cluster: there, user: hub, namespace: default}}]
current-context: main
`, cluster, user)
}

const (
	server = "server: https://api.example.com:6443"
	token  = "token: " + secret
)

func TestAccess(t *testing.T) {
	certificate := base64.StdEncoding.EncodeToString([]byte(certificatePEM))
	key := base64.StdEncoding.EncodeToString([]byte(keyPEM))
	cases := map[string]struct {
		content string
		options Options
		want    Access
	}{
		"a token": {
			content: file(server, token),
			want:    Access{Server: "https://api.example.com:6443", Token: secret},
		},
		"everything about the server": {
			content: file("server: 'https://API.Example.com:443/k8s/c-1/', tls-server-name: api, disable-compression: true, "+
				"certificate-authority-data: "+certificate+", proxy-url: 'http://proxy:3128', extensions: [{name: a}]", token),
			want: Access{
				Server: "https://api.example.com/k8s/c-1", ServerName: "api", CA: certificatePEM,
				Proxy: "http://proxy:3128", Token: secret,
			},
		},
		"a client certificate": {
			content: file(server, "client-certificate-data: "+certificate+", client-key-data: "+key),
			want: Access{
				Server: "https://api.example.com:6443", Certificate: certificatePEM, Key: keyPEM,
			},
		},
		"a password": {
			content: file("server: 'https://[2001:DB8::1]'", "username: hub, password: "+secret),
			want:    Access{Server: "https://[2001:db8::1]", Username: "hub", Password: secret},
		},
		"fields that say nothing": {
			content: file(server+", insecure-skip-tls-verify: false, certificate-authority: ''",
				token+", exec: null, tokenFile: '', as-groups: []"),
			want: Access{Server: "https://api.example.com:6443", Token: secret},
		},
		"a server that is not verified, where that is admitted": {
			content: file(server+", insecure-skip-tls-verify: true", token), options: Options{InsecureTLS: true},
			want: Access{Server: "https://api.example.com:6443", Insecure: true, Token: secret},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Parse([]byte(tc.content), tc.options)
			if err != nil {
				t.Fatal(err)
			}
			// Compared as plain structs: an Access shows its server alone.
			type plain Access
			if diff := cmp.Diff(plain(tc.want), plain(got)); diff != "" {
				t.Errorf("access (-want +got):\n%s", diff)
			}
		})
	}
}

// T-20, T-22: nothing is dropped in silence, and the message says which field.
func TestRefusals(t *testing.T) {
	cases := map[string]struct {
		content string
		want    string // the whole error
	}{
		"an alias, which multiplies what it stands for": {
			content: "preferences: {a: &a " + secret + ", b: [*a, *a]}\n" + file(server, token),
			want:    "line 1 has an anchor or an alias: write out what it stands for",
		},
		"an anchor of no use": {
			content: file(server, "token: &a "+secret), want: "line 6 has an anchor or an alias: write out what it stands for",
		},
		"more than a kubeconfig has": {
			content: "# " + strings.Repeat("x", maxSize) + file(server, token),
			want:    fmt.Sprintf("it has %d bytes, of which %d are the most", len(file(server, token))+maxSize+2, maxSize),
		},
		"a program": {
			content: file(server, "exec: {command: /bin/touch, args: ["+secret+"]}"), want: "users[0].user.exec " + aProgram,
		},
		"a plugin": {
			content: file(server, "auth-provider: {name: oidc}, "+token), want: "users[0].user.auth-provider " + aProvider,
		},
		"a file with a token": {
			content: file(server, "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token"),
			want:    "users[0].user.tokenFile " + aFile("token"),
		},
		"files with a client certificate": {
			content: file(server, "client-certificate: /tls.crt, client-key: /tls.key"),
			want: "users[0].user.client-certificate " + aFile("client-certificate-data") + "; " +
				"users[0].user.client-key " + aFile("client-key-data"),
		},
		"a file with a CA": {
			content: file(server+", certificate-authority: /ca.crt", token),
			want:    "clusters[0].cluster.certificate-authority " + aFile("certificate-authority-data"),
		},
		"impersonation": {
			content: file(server, token+", as: admin, as-uid: '1', as-groups: ['system:masters'], as-user-extra: {a: [b]}"),
			want: "users[0].user.as " + impersonates + "; users[0].user.as-groups " + impersonates +
				"; users[0].user.as-uid " + impersonates + "; users[0].user.as-user-extra " + impersonates,
		},
		"a program of a user that is not the current one": {
			content: strings.Replace(file(server, token), "users: [", "users: [{name: other, user: {exec: {command: /bin/id}}}, ", 1),
			want:    "users[0].user.exec " + aProgram,
		},
		"a server that is not verified": {
			content: file(server+", insecure-skip-tls-verify: true", token),
			want: "clusters[0].cluster.insecure-skip-tls-verify would take any server for the right one: set " +
				"certificate-authority-data, or have the reconciler run with --insecure-kubeconfig-tls",
		},
		"a field that nobody knows": {
			content: file(server, token+", hunter2: x"),
			want: "users[0].user has a field other than token, client-certificate-data, client-key-data, username, " +
				"password, extensions",
		},
		"a field in another case": {
			content: file(server, token+", EXEC: {command: /bin/id}"),
			want: "users[0].user has a field other than token, client-certificate-data, client-key-data, username, " +
				"password, extensions",
		},
		"a list of something else": {
			content: "{clusters: [hunter2], users: [], contexts: {}, current-context: hunter2}",
			want: "clusters[0] is not of the form {name: …, cluster: {…}}; users is no list, or missing; " +
				"contexts is no list, or missing",
		},
		"no current context": {
			content: strings.Replace(file(server, token), "current-context: main", "", 1), want: "current-context is not set",
		},
		"a current context that is not there": {
			content: strings.Replace(file(server, token), "current-context: main", "current-context: hunter2", 1),
			want:    "current-context names nothing that there is",
		},
		"a user that is not there": {
			content: strings.Replace(file(server, token), "user: hub,", "user: hunter2,", 1),
			want:    "contexts[0].context.user names nothing that there is",
		},
		"two users of a name": {
			content: strings.Replace(file(server, token), "users: [", "users: [{name: hub, user: {token: a}}, ", 1),
			want:    "users[1].name is that of another one too",
		},
		"no credentials": {
			content: file(server, "extensions: []"),
			want:    "users[0].user.token is not set, nor a client certificate: nothing says who asks",
		},
		"a token that is a number": {
			content: file(server, "token: 1234567890"),
			want: "users[0].user.token is no text: quote it; users[0].user.token is not set, nor a client certificate: nothing " +
				"says who asks",
		},
		"a token that would end the header": {
			content: file(server, `token: "hunter2\r\nImpersonate-User: admin"`),
			want:    "users[0].user.token has a character that no token has",
		},
		"two ways to say who asks": {
			content: file(server, token+", username: hub"), want: "users[0].user.token and username are both set: remove one",
		},
		"a certificate without its key": {
			content: file(server, "client-certificate-data: "+base64.StdEncoding.EncodeToString([]byte(certificatePEM))),
			want:    "users[0].user.client-certificate-data and client-key-data are no certificate, in PEM, with its key",
		},
		"a CA that is none": {
			content: file(server+", certificate-authority-data: "+base64.StdEncoding.EncodeToString([]byte(secret)), token),
			want:    "clusters[0].cluster.certificate-authority-data has no certificate in PEM",
		},
		"a CA that is not base64": {
			content: file(server+", certificate-authority-data: "+secret, token),
			want:    "clusters[0].cluster.certificate-authority-data is not base64",
		},
		"a proxy of another kind": {
			content: file(server+", proxy-url: 'ftp://hunter2@proxy'", token),
			want:    "clusters[0].cluster.proxy-url is not a URL of a proxy, http, https or socks5",
		},
		"YAML that is none":         {content: "a: 1\nb: [" + secret, want: "it is no YAML of a kubeconfig: see around line 1"},
		"an alias of nothing":       {content: "a: *" + secret, want: "it is no YAML of a kubeconfig"},
		"a key that is there twice": {content: "clusters: []\nclusters: []", want: "it is no YAML of a kubeconfig: see around line 2"},
		"no object":                 {content: secret, want: "it is no YAML of a kubeconfig"},
		"nothing":                   {content: "", want: "it is empty"},
	}
	for _, wrong := range []string{
		"http://api.example.com", "api.example.com:6443", "https://", "https://hunter2:x@api.example.com", "https://api?hunter2=1",
		"https://api#hunter2", "unix:///var/run/api.sock", "", "https://%zz",
	} {
		cases["the server "+wrong] = struct{ content, want string }{
			content: file("server: '"+wrong+"'", token),
			want:    "clusters[0].cluster.server is not a URL such as https://api.example.com:6443",
		}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(tc.content), Options{})
			if err == nil {
				t.Fatal("it is admitted")
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error quotes the file: %v", err)
			}
		})
	}
}

func TestSelect(t *testing.T) {
	cases := map[string]struct {
		entries map[string][]byte
		key     string
		want    string
		err     string
	}{
		"value":               {entries: keys("value", "value.yaml"), want: "value"},
		"value.yaml":          {entries: keys("value.yaml", "other"), want: "value.yaml"},
		"a key":               {entries: keys("value", "prod"), key: "prod", want: "prod"},
		"another key":         {entries: keys("prod", "dev"), err: "there is no key value or value.yaml: it has dev, prod"},
		"a key that is wrong": {entries: keys("value"), key: "prod", err: "there is no key prod: it has value"},
		"nothing":             {err: "there is no key value or value.yaml: it has no keys at all"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Select(tc.entries, tc.key)
			if string(got) != tc.want {
				t.Errorf("got the content of %q, want %q", got, tc.want)
			}
			if fmt.Sprint(err) != tc.err && (err != nil || tc.err != "") {
				t.Errorf("error %v, want %q", err, tc.err)
			}
		})
	}
}

// keys are entries whose values are their keys.
func keys(names ...string) map[string][]byte {
	entries := map[string][]byte{}
	for _, name := range names {
		entries[name] = []byte(name)
	}
	return entries
}

// What is the same server, and what is the same connection.
func TestIdentities(t *testing.T) {
	access := Access{Server: "https://api", CA: "ca", Token: "a", Certificate: "c", Key: "k"}
	change := func(change func(*Access)) Access {
		changed := access
		change(&changed)
		return changed
	}
	cases := map[string]struct {
		other                                Access
		cluster, endpoint, connection, whole bool
	}{
		"nothing":     {other: access, cluster: true, endpoint: true, connection: true, whole: true},
		"token":       {other: change(func(a *Access) { a.Token = "b" }), cluster: true, endpoint: true, connection: true},
		"password":    {other: change(func(a *Access) { a.Password = "b" }), cluster: true, endpoint: true, connection: true},
		"certificate": {other: change(func(a *Access) { a.Certificate = "" }), cluster: true, endpoint: true},
		"CA":          {other: change(func(a *Access) { a.CA = "" }), cluster: true},
		"proxy":       {other: change(func(a *Access) { a.Proxy = "http://p" }), cluster: true},
		"insecure":    {other: change(func(a *Access) { a.Insecure = true }), cluster: true},
		"server name": {other: change(func(a *Access) { a.ServerName = "b" }), cluster: true},
		"server":      {other: change(func(a *Access) { a.Server = "https://b" })},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := []bool{
				access.Cluster() == tc.other.Cluster(), access.Endpoint() == tc.other.Endpoint(),
				access.Connection() == tc.other.Connection(), access.Hash() == tc.other.Hash(),
			}
			if diff := cmp.Diff([]bool{tc.cluster, tc.endpoint, tc.connection, tc.whole}, got); diff != "" {
				t.Errorf("same cluster, endpoint, connection, all (-want +got):\n%s", diff)
			}
		})
	}
}

// However it is printed, nothing but the server is seen.
func TestAccessShowsNoSecrets(t *testing.T) {
	access := Access{
		Server: "https://api", Token: secret, Password: secret, Proxy: "http://a:" + secret + "@proxy", Key: secret,
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(format, access); got != "https://api" {
			t.Errorf("%s prints %s", format, got)
		}
	}
}

// FuzzParse: whatever a tenant writes, it is understood or refused, and what is understood leads somewhere, as somebody.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		file(server, token), file(server+", insecure-skip-tls-verify: true", token), file(server, "exec: {command: /bin/touch}"),
		file(server, "tokenFile: /token"), file("server: 'http://[::1'", token), file(server+", proxy-url: ':'", token),
		"", "a: &a [*a]",
		"clusters: [{}]", strings.Repeat("[", 2000), "users: 1", "\x00", "clusters: [{name: 1, cluster: {server: 1}}]\nusers: []",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		access, err := Parse(content, Options{})
		if err != nil {
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error quotes the file: %v", err)
			}
			return
		}
		if !strings.HasPrefix(access.Server, "https://") || access.Insecure {
			t.Errorf("it leads to %s, insecure %t", access.Server, access.Insecure)
		}
		if access.Token == "" && access.Username == "" && len(access.Certificate) == 0 {
			t.Error("nobody asks")
		}
	})
}

var certificatePEM, keyPEM = pair()

// pair is a certificate and its key, in PEM.
func pair() (certificate, key string) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		panic(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		panic(err)
	}
	block := func(kind string, bytes []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}))
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", pkcs8)
}

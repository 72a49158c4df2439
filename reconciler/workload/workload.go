// Package workload reads ConfigMaps with which tenants say how another cluster is reached with the identity of one of their
// accounts. A tenant writes all of it, so whatever is not understood is refused, by name. It is pure: it never reads an
// object, requests a token or connects, and it does not know whether the tenant may use what it names.
package workload

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stageset/stageset/reconciler/kubeconfig"
)

// The keys of the ConfigMap.
const (
	keyProvider       = "provider"
	keyAddress        = "address"
	keyCA             = "ca.crt"
	keyAudiences      = "audiences"
	keyServiceAccount = "serviceAccountName"
)

var keys = []string{keyProvider, keyAddress, keyCA, keyAudiences, keyServiceAccount}

// generic is the provider of clusters that take the tokens of this one's ServiceAccounts themselves.
const generic = "generic"

// A token holds its audiences, and many tokens are kept.
const (
	mostAudiences   = 16
	longestAudience = 512
)

// Cluster is what a ConfigMap says.
type Cluster struct {
	// Server is the URL of the API server, as kubeconfig.Server has it.
	Server string
	// CA are the certificates, in PEM, that the server's is verified by; none are those of the system.
	CA string
	// Audiences are whom the account's token is for: one at least.
	Audiences []string
	// ServiceAccount is the name of the account whose token is used; empty if none is named.
	ServiceAccount string
}

// Parse reads the data of a ConfigMap. An error names every key that is missing, unknown or malformed, and says what it has
// to be.
func Parse(data map[string]string) (Cluster, error) {
	r := &reader{data: data}
	r.known()
	r.provider()
	cluster := Cluster{Server: r.server(), CA: r.ca(), Audiences: r.audiences(), ServiceAccount: r.serviceAccount()}
	if len(r.problems) > 0 {
		return Cluster{}, errors.New(strings.Join(r.problems, "; "))
	}
	return cluster, nil
}

// reader reads a ConfigMap and collects what is wrong with it.
type reader struct {
	data     map[string]string
	problems []string
}

func (r *reader) problem(key, what string) { r.problems = append(r.problems, key+" "+what) }

// text is a value without the line break that YAML likes to end it with.
func (r *reader) text(key string) string { return strings.TrimSpace(r.data[key]) }

// known refuses other keys: one with a typing error would be missing in silence.
func (r *reader) known() {
	for _, key := range slices.Sorted(maps.Keys(r.data)) {
		if !slices.Contains(keys, key) {
			r.problem(key, "is not a key that there is: use "+strings.Join(keys, ", "))
		}
	}
}

func (r *reader) provider() {
	switch r.text(keyProvider) {
	case generic:
	case "":
		r.problem(keyProvider, "is not set: set it to "+generic)
	default:
		r.problem(keyProvider, "is not one that there is: set it to "+generic)
	}
}

func (r *reader) server() string {
	if r.text(keyAddress) == "" {
		r.problem(keyAddress, "is not set: set it to the URL of the API server")
		return ""
	}
	server, err := kubeconfig.Server(r.text(keyAddress))
	if err != nil {
		r.problem(keyAddress, err.Error())
	}
	return server
}

func (r *reader) ca() string {
	ca, set := r.data[keyCA]
	if set && !x509.NewCertPool().AppendCertsFromPEM([]byte(ca)) {
		r.problem(keyCA, "has no certificate in PEM")
	}
	return ca
}

// audiences are in the order of the lines, so that the same tokens are used as long as nothing changes.
func (r *reader) audiences() []string {
	var audiences []string
	for line := range strings.Lines(r.data[keyAudiences]) {
		if line = strings.TrimSpace(line); line != "" {
			audiences = append(audiences, line)
		}
	}
	_, set := r.data[keyAudiences]
	switch {
	case !set:
		audiences = []string{r.text(keyAddress)}
	case len(audiences) == 0:
		r.problem(keyAudiences, "is empty: name one on each line, or remove it for the address")
	case len(audiences) > mostAudiences:
		r.problem(keyAudiences, fmt.Sprintf("are more than %d", mostAudiences))
	}
	if slices.ContainsFunc(audiences, func(audience string) bool { return len(audience) > longestAudience }) {
		r.problem(keyAudiences, fmt.Sprintf("has one of more than %d bytes", longestAudience))
	}
	return audiences
}

func (r *reader) serviceAccount() string {
	name, set := r.data[keyServiceAccount]
	name = strings.TrimSpace(name)
	if set && len(validation.IsDNS1123Subdomain(name)) > 0 {
		r.problem(keyServiceAccount, "is not the name of a ServiceAccount")
	}
	return name
}

// Package workload reads ConfigMaps with which tenants say how another cluster is reached with the identity of one of their
// accounts. A tenant writes all of it, so whatever is not understood is refused, by name. It is pure: it never reads an
// object, requests a token or connects, and it does not know whether the tenant may use what it names.
package workload

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stageset/stageset/reconciler/kubeconfig"
)

// The keys of the ConfigMap.
const (
	keyProvider       = "provider"
	keyCluster        = "cluster"
	keyAddress        = "address"
	keyCA             = "ca.crt"
	keyAudiences      = "audiences"
	keyServiceAccount = "serviceAccountName"
)

var keys = []string{keyProvider, keyCluster, keyAddress, keyCA, keyAudiences, keyServiceAccount}

// generic is the provider of clusters that take the tokens of this one's ServiceAccounts themselves.
const generic = "generic"

// clouds are the other providers, who exchange such a token: how they name a cluster, and an example of it. Parts of the
// name become parts of the provider's addresses, so they are no more than names can be.
var clouds = map[string]struct {
	name    *regexp.Regexp
	example string
}{
	"aws": {
		regexp.MustCompile(`^arn:aws[a-z-]*:eks:[a-z]{2,}(-[a-z]+)+-[0-9]+:[0-9]{12}:cluster/[0-9A-Za-z][0-9A-Za-z_-]{0,99}$`),
		"arn:aws:eks:eu-central-1:123456789012:cluster/production",
	},
	"azure": {
		regexp.MustCompile(`(?i)^/subscriptions/[0-9a-f-]{36}/resourceGroups/[\w()][\w.()-]{0,89}` +
			`/providers/Microsoft\.ContainerService/managedClusters/\w[\w-]{0,62}$`),
		"/subscriptions/…/resourceGroups/shop/providers/Microsoft.ContainerService/managedClusters/production",
	},
	"gcp": {
		regexp.MustCompile(`^projects/[a-z0-9][a-z0-9.:-]{0,99}/locations/[a-z][a-z0-9-]{0,62}/clusters/[a-z][a-z0-9-]{0,62}$`),
		"projects/shop/locations/europe-west3/clusters/production",
	},
}

// providers are all of them, as messages name them.
var providers = strings.Join(append(slices.Sorted(maps.Keys(clouds)), generic), ", ")

// Many tokens are kept, with what they were asked for with.
const (
	mostAudiences   = 16
	longestAudience = 512
	longestCA       = 64 << 10
)

// Cluster is what a ConfigMap says.
type Cluster struct {
	// Cloud is the provider who exchanges the token; empty if the cluster itself takes it.
	Cloud string
	// Resource is how that provider names the cluster.
	Resource string
	// Server is the URL of the API server, as kubeconfig.Server has it; empty if the provider knows it.
	Server string
	// CA are the certificates, in PEM, that the server's is verified by; none are those that the provider knows, or of the
	// system.
	CA string
	// Audiences are whom the account's token is for; none are those that the provider wants.
	Audiences []string
	// ServiceAccount is the name of the account whose token is used; empty if none is named.
	ServiceAccount string
}

// Parse reads the data of a ConfigMap. An error names every key that is missing, unknown or malformed, and says what it has
// to be.
func Parse(data map[string]string) (Cluster, error) {
	r := &reader{data: data}
	r.known()
	cluster := Cluster{
		Cloud: r.provider(), Resource: r.cluster(), Server: r.server(), CA: r.ca(), Audiences: r.audiences(),
		ServiceAccount: r.serviceAccount(),
	}
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

// provider is the name of a cloud, or nothing for the one that is none.
func (r *reader) provider() string {
	name := r.text(keyProvider)
	_, cloud := clouds[name]
	switch {
	case cloud:
		return name
	case name == "":
		r.problem(keyProvider, "is not set: set it to one of "+providers)
	case name != generic:
		r.problem(keyProvider, "is not one that there is: set it to one of "+providers)
	}
	return ""
}

// ofCloud tells whether the provider is one who knows where the cluster is.
func (r *reader) ofCloud() bool {
	_, cloud := clouds[r.text(keyProvider)]
	return cloud
}

func (r *reader) cluster() string {
	name, set := r.text(keyCluster), r.data[keyCluster] != ""
	cloud := clouds[r.text(keyProvider)]
	switch {
	case cloud.name == nil && set:
		r.problem(keyCluster, "says nothing to the provider: remove it")
	case cloud.name != nil && !cloud.name.MatchString(name):
		r.problem(keyCluster, "is not the name of a cluster such as "+cloud.example)
	}
	return name
}

func (r *reader) server() string {
	address := r.text(keyAddress)
	if address == "" {
		if !r.ofCloud() {
			r.problem(keyAddress, "is not set: set it to the URL of the API server")
		}
		return ""
	}
	server, err := kubeconfig.Server(address)
	if err != nil {
		r.problem(keyAddress, err.Error())
	}
	return server
}

func (r *reader) ca() string {
	ca, set := r.data[keyCA]
	switch {
	case len(ca) > longestCA:
		r.problem(keyCA, fmt.Sprintf("has more than %d bytes", longestCA))
	case set && !x509.NewCertPool().AppendCertsFromPEM([]byte(ca)):
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
	case !set && r.ofCloud():
	case !set:
		audiences = []string{r.text(keyAddress)}
	case len(audiences) == 0:
		r.problem(keyAudiences, "is empty: name one on each line, or remove it for the usual one")
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

package source

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	v1 "github.com/stageset/stageset/api/v1"
)

// DefaultHosts is the default of --artifact-hosts: Services of the namespace that Flux is installed in by default.
var DefaultHosts = []string{"*.flux-system.svc", "*.flux-system.svc.cluster.local"}

// Hosts says on which hosts artifacts may be. The zero value allows none.
type Hosts struct {
	globs []string
}

// ParseHosts reads the values of --artifact-hosts: host names without port in which * stands for any characters.
func ParseHosts(globs []string) (Hosts, error) {
	var hosts Hosts
	for _, glob := range globs {
		clean := canonicalHost(strings.TrimSpace(glob))
		if _, err := path.Match(clean, ""); err != nil || clean == "" || strings.ContainsAny(clean, "/@ ") {
			return Hosts{}, fmt.Errorf("%q is not a host name such as *.flux-system.svc", glob)
		}
		hosts.globs = append(hosts.globs, clean)
	}
	return hosts, nil
}

// canonicalHost is host as names are compared: in lower case and without the dot that ends a fully qualified name.
func canonicalHost(host string) string {
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// check says what keeps u from being the address of an artifact.
func (h Hosts) check(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("its scheme is %q, not http or https", u.Scheme)
	}
	if u.User != nil {
		return errors.New("it carries a user name")
	}
	host := canonicalHost(u.Hostname())
	for _, glob := range h.globs {
		if matched, err := path.Match(glob, host); err == nil && matched {
			return nil
		}
	}
	return fmt.Errorf("its host %q is none of --artifact-hosts (%s)", host, strings.Join(h.globs, ", "))
}

// checkArtifactURL says what keeps address from being that of an artifact of the source. Roles of Flux let tenants write
// the status of sources, so that nothing in it is trusted: source-controller serves an artifact under the kind, namespace
// and name of its source, and a status must not point into another source's directory.
func (h Hosts) checkArtifactURL(address string, kind v1.SourceKind, namespace, name string) error {
	u, err := url.Parse(address)
	if err != nil {
		// The error of url.Parse repeats the address, which may carry a signature.
		return errors.New("it is not a URL")
	}
	if err := h.check(u); err != nil {
		return err
	}
	if kind == v1.SourceKindExternalArtifact {
		return checkProducerPath(u.Path, namespace, name)
	}
	if u.RawPath != "" || (u.Path != path.Clean(u.Path)) || strings.Contains(u.Path, `\`) {
		return errors.New("its path is not in its plain form")
	}
	directory := fmt.Sprintf("/%s/%s/%s/", strings.ToLower(string(kind)), namespace, name)
	if !strings.Contains(u.Path, directory) {
		return fmt.Errorf("its path does not contain %s", directory)
	}
	return nil
}

// flux are the directories that the servers of Flux have for each kind, under which come namespace and name.
var flux = []string{"gitrepository", "ocirepository", "bucket", "helmchart", "helmrepository", "externalartifact"}

// checkProducerPath says what keeps address from being that of an ExternalArtifact. Its producer chooses the path, except
// that it must not be what another source's is: whoever may write the status of an ExternalArtifact could else have the
// reconciler fetch the content of somebody else's repository.
func checkProducerPath(address, namespace, name string) error {
	segments := strings.Split(strings.Trim(path.Clean("/"+strings.ReplaceAll(address, `\`, "/")), "/"), "/")
	for i, segment := range segments {
		directory := strings.ToLower(segment)
		if !slices.Contains(flux, directory) || i+3 >= len(segments) {
			continue
		}
		if directory != "externalartifact" || segments[i+1] != namespace || segments[i+2] != name {
			return fmt.Errorf("its path is in the directory of %s %s/%s", segment, segments[i+1], segments[i+2])
		}
	}
	return nil
}

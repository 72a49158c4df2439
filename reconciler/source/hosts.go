package source

// DefaultHosts is the default of --artifact-hosts: Services of the namespace that Flux is installed in by default.
var DefaultHosts = []string{"*.flux-system.svc", "*.flux-system.svc.cluster.local"}

// Hosts says on which hosts artifacts may be. The zero value allows none.
type Hosts struct {
	globs []string
}

// ParseHosts reads the values of --artifact-hosts: host names without port in which * stands for any characters.
func ParseHosts(globs []string) (Hosts, error) { return Hosts{globs: globs}, nil }

// Package dial is the one dialer for addresses that a tenant can name: artifacts and their redirects, API servers and
// proxies of kubeconfigs, http actions. It refuses, after name resolution, addresses that lead to the reconciler's own
// machine or to the cloud's metadata service. It never resolves a name twice, never reads proxy settings from the
// environment, and never connects to anything but TCP.
package dial

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// connectTimeout bounds one attempt to connect, name resolution included.
const connectTimeout = 10 * time.Second

// Dialer connects to addresses that a tenant named. It is safe for concurrent use.
type Dialer struct {
	allow []netip.Prefix
	net   net.Dialer
}

// New is a Dialer that refuses loopback, link-local, multicast and unspecified addresses and the well-known addresses of
// metadata services, except those in allow (flag --dial-allow, see ParseAllow). All other addresses are admitted:
// what a cluster's pods may reach is the business of its network policies.
func New(allow []netip.Prefix) *Dialer {
	d := &Dialer{allow: append([]netip.Prefix(nil), allow...)}
	// The net package calls ControlContext with the address that it is about to connect to. Checking there, and not
	// after a resolution of our own, leaves no second resolution that could give another answer.
	d.net = net.Dialer{Timeout: connectTimeout, KeepAlive: 30 * time.Second, ControlContext: d.control}
	return d
}

// DialContext connects to addr (host:port) over TCP. An address that is not admitted gives an error whose chain holds a
// *RefusedError.
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	switch network {
	case "tcp", "tcp4", "tcp6":
		return d.net.DialContext(ctx, network, addr)
	default:
		return nil, fmt.Errorf("dial %s: network %q is not TCP", addr, network)
	}
}

// control is called between name resolution and connect.
func (d *Dialer) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	return d.Check(target.Addr())
}

// Check says whether addr is admitted: nil, or a *RefusedError.
func (d *Dialer) Check(addr netip.Addr) error {
	plain := addr.WithZone("").Unmap()
	for _, prefix := range d.allow {
		if prefix.Contains(plain) {
			return nil
		}
	}
	if rule := refusal(plain); rule != "" {
		return &RefusedError{Addr: addr, Rule: rule}
	}
	return nil
}

// CheckHost is Check for a host that is written as an address, or as a name of the machine itself. It is nil for every other
// name: what that leads to is checked when it is connected to.
func (d *Dialer) CheckHost(host string) error {
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return d.Check(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return nil
	}
	return d.Check(addr)
}

// RefusedError says that an address is one that tenants may not reach.
type RefusedError struct {
	// Addr is the address, after name resolution.
	Addr netip.Addr
	// Rule is what the address is, e.g. "a loopback address".
	Rule string
}

// Error names the address, the rule and the flag that admits it.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("address %s is %s, which the reconciler does not connect to unless --dial-allow admits it",
		e.Addr, e.Rule)
}

package dial

import (
	"fmt"
	"net/netip"
	"strings"
)

// metadata are addresses of metadata and host services of clouds that are not link-local: AWS and Google over IPv6,
// Alibaba, Azure's host agent, Oracle.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),
	netip.MustParseAddr("fd20:ce::254"),
	netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("168.63.129.16"),
	netip.MustParseAddr("192.0.0.192"),
}

var (
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8")
	broadcast   = netip.MustParseAddr("255.255.255.255")
	// siteLocal is deprecated by RFC 3879; some stacks still treat it as local.
	siteLocal = netip.MustParsePrefix("fec0::/10")
	// localNAT64 (RFC 8215) has no fixed place for the IPv4 address in it, so that it cannot be looked through.
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")
	// teredo (RFC 4380) hides an IPv4 address behind a relay; nothing legitimate is reached that way any more.
	teredo = netip.MustParsePrefix("2001::/32")
)

// carriers are IPv6 prefixes whose addresses stand for an IPv4 address, and the offset of that address in bytes:
// NAT64 (RFC 6052), 6to4 (RFC 3056), IPv4-compatible (RFC 4291, deprecated), IPv4-translated (RFC 2765).
var carriers = []struct {
	prefix netip.Prefix
	offset int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},
	{netip.MustParsePrefix("2002::/16"), 2},
	{netip.MustParsePrefix("::/96"), 12},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12},
}

// refusal is what makes addr (without zone, unmapped) an address that is refused; empty if nothing does.
func refusal(addr netip.Addr) string {
	switch {
	case !addr.IsValid():
		return "not an IP address"
	case addr.IsUnspecified() || thisNetwork.Contains(addr):
		return "an unspecified address"
	case addr.IsLoopback():
		return "a loopback address"
	case addr.IsLinkLocalUnicast() || siteLocal.Contains(addr):
		return "a link-local address"
	case addr.IsMulticast() || addr == broadcast:
		return "a multicast address"
	case localNAT64.Contains(addr) || teredo.Contains(addr):
		return "an address that hides another one"
	}
	for _, known := range metadata {
		if addr == known {
			return "the address of a metadata service"
		}
	}
	for _, carrier := range carriers {
		if carrier.prefix.Contains(addr) {
			bytes := addr.As16()
			inner := netip.AddrFrom4([4]byte(bytes[carrier.offset : carrier.offset+4]))
			if rule := refusal(inner); rule != "" {
				return fmt.Sprintf("%s (it stands for %s)", rule, inner)
			}
		}
	}
	return ""
}

// ParseAllow reads the values of --dial-allow: prefixes (10.0.0.0/8, fd00::/8) or single addresses. A prefix must have no
// bits set below its length, so that a slip of the pen does not admit more than was meant.
func ParseAllow(values []string) ([]netip.Prefix, error) {
	prefixes := make([]netip.Prefix, 0, len(values))
	for _, value := range values {
		prefix, err := parsePrefix(strings.TrimSpace(value))
		if err != nil {
			return nil, fmt.Errorf("%q: %w", value, err)
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}

func parsePrefix(value string) (netip.Prefix, error) {
	if !strings.Contains(value, "/") {
		addr, err := netip.ParseAddr(value)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("neither an IP address nor a prefix such as 10.0.0.0/8")
		}
		addr = addr.WithZone("").Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(value)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("not a prefix such as 10.0.0.0/8")
	}
	if prefix.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("write IPv4-mapped addresses as IPv4")
	}
	if prefix != prefix.Masked() {
		return netip.Prefix{}, fmt.Errorf("has bits set below its length; did you mean %s?", prefix.Masked())
	}
	return prefix, nil
}

package dial

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCheck(t *testing.T) {
	cases := map[string]string{
		"127.0.0.1":              "a loopback address",
		"127.255.255.254":        "a loopback address",
		"::1":                    "a loopback address",
		"::ffff:127.0.0.1":       "a loopback address",
		"::127.0.0.1":            "a loopback address (it stands for 127.0.0.1)",
		"64:ff9b::7f00:1":        "a loopback address (it stands for 127.0.0.1)",
		"64:ff9b::a9fe:a9fe":     "a link-local address (it stands for 169.254.169.254)",
		"64:ff9b:1::a9fe:a9fe":   "an address that hides another one",
		"2002:7f00:1::":          "a loopback address (it stands for 127.0.0.1)",
		"2001::1":                "an address that hides another one",
		"::ffff:0:169.254.1.1":   "a link-local address (it stands for 169.254.1.1)",
		"169.254.169.254":        "a link-local address",
		"::ffff:169.254.169.254": "a link-local address",
		"fe80::1%eth0":           "a link-local address",
		"fec0::1":                "a link-local address",
		"224.0.0.1":              "a multicast address",
		"239.255.255.250":        "a multicast address",
		"ff02::1":                "a multicast address",
		"255.255.255.255":        "a multicast address",
		"0.0.0.0":                "an unspecified address",
		"0.1.2.3":                "an unspecified address",
		"::":                     "an unspecified address",
		"::ffff:0.0.0.0":         "an unspecified address",
		"fd00:ec2::254":          "the address of a metadata service",
		"100.100.100.200":        "the address of a metadata service",
		"168.63.129.16":          "the address of a metadata service",
		"64:ff9b::a83f:8110":     "the address of a metadata service (it stands for 168.63.129.16)",
		"10.96.0.1":              "",
		"192.168.1.1":            "",
		"172.16.0.1":             "",
		"100.64.0.1":             "",
		"fd12:3456::1":           "",
		"2606:4700::1111":        "",
		"64:ff9b::a60:1":         "",
		"2002:a60:1::":           "",
		"::ffff:10.96.0.1":       "",
		"1.1.1.1":                "",
	}
	dialer := New(nil)
	for address, want := range cases {
		t.Run(address, func(t *testing.T) {
			got := ""
			var refused *RefusedError
			if err := dialer.Check(netip.MustParseAddr(address)); errors.As(err, &refused) {
				got = refused.Rule
			} else if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("rule (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckAllows(t *testing.T) {
	allow, err := ParseAllow([]string{"127.0.0.0/8", "fe80::/10"})
	if err != nil {
		t.Fatal(err)
	}
	dialer := New(allow)
	for address, want := range map[string]bool{
		"127.0.0.1":        true,
		"::ffff:127.0.0.2": true,
		"fe80::1%eth0":     true,
		"::1":              false,
		"169.254.169.254":  false,
		"64:ff9b::7f00:1":  false, // named by its own prefix only
	} {
		if got := dialer.Check(netip.MustParseAddr(address)) == nil; got != want {
			t.Errorf("Check(%s) admits = %t, want %t", address, got, want)
		}
	}
}

func TestParseAllow(t *testing.T) {
	cases := map[string]struct {
		want  string
		error string
	}{
		"10.0.0.0/8":          {want: "10.0.0.0/8"},
		" 127.0.0.1 ":         {want: "127.0.0.1/32"},
		"::1":                 {want: "::1/128"},
		"::ffff:127.0.0.1":    {want: "127.0.0.1/32"},
		"fd00::/8":            {want: "fd00::/8"},
		"10.1.2.3/8":          {error: `"10.1.2.3/8": has bits set below its length; did you mean 10.0.0.0/8?`},
		"::ffff:10.0.0.0/104": {error: `"::ffff:10.0.0.0/104": write IPv4-mapped addresses as IPv4`},
		"localhost":           {error: `"localhost": neither an IP address nor a prefix such as 10.0.0.0/8`},
		"10.0.0.0/33":         {error: `"10.0.0.0/33": not a prefix such as 10.0.0.0/8`},
		"":                    {error: `"": neither an IP address nor a prefix such as 10.0.0.0/8`},
	}
	for value, c := range cases {
		t.Run(value, func(t *testing.T) {
			prefixes, err := ParseAllow([]string{value})
			text, got := "", ""
			if err != nil {
				text = err.Error()
			} else {
				got = prefixes[0].String()
			}
			if diff := cmp.Diff([]string{c.want, c.error}, []string{got, text}); diff != "" {
				t.Errorf("ParseAllow (-want +got):\n%s", diff)
			}
		})
	}
}

// listener accepts on loopback and counts connections.
func listener(t *testing.T) (address string, connections *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	connections = new(atomic.Int64)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			conn.Close()
		}
	}()
	return l.Addr().String(), connections
}

func TestDialContextRefusesAfterNameResolution(t *testing.T) {
	address, connections := listener(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "0.0.0.0", "::ffff:127.0.0.1"} {
		t.Run(host, func(t *testing.T) {
			conn, err := New(nil).DialContext(context.Background(), "tcp", net.JoinHostPort(host, port))
			if err == nil {
				conn.Close()
				t.Fatal("connected to loopback")
			}
			var refused *RefusedError
			if !errors.As(err, &refused) {
				t.Fatalf("error %v holds no *RefusedError", err)
			}
			if !strings.Contains(err.Error(), "--dial-allow") {
				t.Errorf("error %q does not say how to admit the address", err)
			}
		})
	}
	if got := connections.Load(); got != 0 {
		t.Errorf("%d connections reached the listener", got)
	}
}

func TestDialContextConnectsToAllowedAddress(t *testing.T) {
	address, _ := listener(t)
	dialer := New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
	conn, err := dialer.DialContext(context.Background(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestDialContextConnectsOnlyWithTCP(t *testing.T) {
	for network, address := range map[string]string{"unix": "/run/containerd.sock", "udp": "10.0.0.1:53", "ip": "10.0.0.1"} {
		if conn, err := New(nil).DialContext(context.Background(), network, address); err == nil {
			conn.Close()
			t.Errorf("%s: connected", network)
		}
	}
}

func TestTransportChecksRedirects(t *testing.T) {
	var reached atomic.Int64
	inside := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	inside.Listener.Close()
	inside.Listener = l
	inside.Start()
	defer inside.Close()
	outside := httptest.NewServer(http.RedirectHandler(inside.URL, http.StatusFound))
	defer outside.Close()

	transport := New([]netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}).Transport()
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	response, err := client.Get(outside.URL)
	if err == nil {
		response.Body.Close()
		t.Fatal("the redirect to a refused address was followed")
	}
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Addr != netip.MustParseAddr("127.0.0.2") {
		t.Errorf("error %v does not refuse 127.0.0.2", err)
	}
	if reached.Load() != 0 {
		t.Error("the refused address was reached")
	}
}

func TestTransportIgnoresProxiesOfTheEnvironment(t *testing.T) {
	proxy, connections := listener(t)
	t.Setenv("HTTP_PROXY", "http://"+proxy)
	t.Setenv("http_proxy", "http://"+proxy)
	transport := New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}).Transport()
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://artifacts.invalid/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := transport.RoundTrip(request); err == nil {
		response.Body.Close()
		t.Error("a name that does not exist answered")
	}
	if got := connections.Load(); got != 0 {
		t.Errorf("%d connections to the proxy", got)
	}
}

// What is written as an address is judged as such, whatever it is called; what a name leads to is not known yet.
func TestCheckHost(t *testing.T) {
	admits := New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
	for host, refused := range map[string]bool{
		"127.0.0.1": true, "localhost": true, "LOCALHOST.": true, "api.localhost": true, "::1": true, "169.254.169.254": true,
		"::ffff:127.0.0.1": true, "10.0.0.1": false, "api.example.com": false, "localhost.example.com": false, "127.1": false,
	} {
		if err := New(nil).CheckHost(host); (err != nil) != refused {
			t.Errorf("%s: %v, want it refused: %t", host, err, refused)
		}
	}
	if err := admits.CheckHost("localhost"); err != nil {
		t.Errorf("a loopback address that is admitted: %v", err)
	}
}

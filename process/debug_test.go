package process_test

import (
	"testing"

	"github.com/stageset/stageset/process"
)

func TestDebugAddressIsLoopback(t *testing.T) {
	for name, test := range map[string]struct {
		address string
		valid   bool
	}{
		"none":             {"", true},
		"IPv4":             {"127.0.0.1:6060", true},
		"IPv6":             {"[::1]:6060", true},
		"every interface":  {":6060", false},
		"unspecified":      {"0.0.0.0:6060", false},
		"another machine":  {"10.0.0.1:6060", false},
		"a name":           {"localhost:6060", false}, // what it resolves to is not ours to say
		"without a port":   {"127.0.0.1", false},
		"not even address": {"pprof", false},
	} {
		t.Run(name, func(t *testing.T) {
			debug := process.Debug{Address: test.address}
			if err := debug.Validate(); (err == nil) != test.valid {
				t.Errorf("Validate() = %v, want valid = %t", err, test.valid)
			}
		})
	}
}

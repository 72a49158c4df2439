package process

import (
	"fmt"
	"net/netip"

	"github.com/spf13/pflag"
)

// Debug is where a program answers with profiles of itself.
type Debug struct {
	// Address is a loopback address with a port, such as 127.0.0.1:6060; empty answers nobody.
	Address string
}

// AddFlags adds --debug-bind-address.
func (d *Debug) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&d.Address, "debug-bind-address", "",
		"loopback address to serve profiles of this process on (/debug/pprof), such as 127.0.0.1:6060; empty serves none")
}

// Validate refuses every address that another machine could reach: a profile tells what a process works on.
func (d *Debug) Validate() error {
	if d.Address == "" {
		return nil
	}
	address, err := netip.ParseAddrPort(d.Address)
	if err != nil || !address.Addr().IsLoopback() {
		return fmt.Errorf("--debug-bind-address is %q: it must be a loopback address with a port, such as 127.0.0.1:6060",
			d.Address)
	}
	return nil
}

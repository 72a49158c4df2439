// Command controlplane is a Kubernetes control plane in one file: etcd, the apiserver, the controller-manager, the
// scheduler and kubectl of one release, and the command "up" that runs them together on loopback for tests and demos.
//
// It never serves a network address other than loopback, and it is no way to run a cluster that matters: etcd does not
// wait for the disk, and whoever can read the directory of "up" is the administrator.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	os.Exit(dispatch(os.Args))
}

// dispatch runs the component that the first argument names, or the name under which the binary was called: a link
// called kubectl is kubectl. Components read os.Args themselves, so they get it as if they were called directly.
func dispatch(args []string) int {
	if run, ok := components[filepath.Base(args[0])]; ok {
		return run(args)
	}
	if len(args) < 2 {
		return usage("no command given")
	}
	run, ok := components[args[1]]
	if !ok {
		return usage(fmt.Sprintf("unknown command %q", args[1]))
	}
	os.Args = args[1:]
	return run(os.Args)
}

func usage(problem string) int {
	names := make([]string, 0, len(components))
	for name := range components {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(os.Stderr, "controlplane: %s\nusage: controlplane %s [arguments]\n", problem, strings.Join(names, "|"))
	return 2
}

// Command demo shows the product to somebody who has just cloned the repository: it starts a cluster and the programs as
// an administrator would, releases two stages from Git as a tenant would, shows what is refused, and stays up for a look
// around. "make run" runs it. It also runs each part of that alone, for Tilt, which replaces one while the others go on.
//
// It never uses a cluster that --kubeconfig does not name, never listens on anything but loopback, and leaves neither a
// process nor a port behind. It is no way to install the product.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Exit codes, besides 0: what was promised did not happen; the command line makes no sense; interrupted before the end.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// options are what the command line says.
type options struct {
	dir        string // what a run keeps; made new by each
	kubeconfig string // of the cluster to use; empty starts one
	once       bool   // end after the show
	part       string // run only this, with what other parts have left in dir
	readyPart  string // ask only whether this part is ready
	webhook    bool   // let the API server ask stageset-admission
}

func main() {
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// execute is the command: it returns the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	opts, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "demo: %v\n", err)
		return exitUsage
	}
	// What libraries log is not for the screen, and the programs have files of their own.
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	d := &demo{options: opts, screen: &screen{out: stdout, clock: clock.RealClock{}}}
	switch {
	case opts.readyPart != "":
		return d.ready(ctx, stderr)
	case opts.part != "":
		// Here a second signal is none: make passes on what its whole process group has got already.
		return d.runPart(ctx, stdout, stderr)
	}
	// A second signal ends this process at once, and the kernel its children.
	context.AfterFunc(ctx, stop)
	return d.run(ctx)
}

func parseFlags(args []string, stderr io.Writer) (options, error) {
	var opts options
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&opts.dir, "dir", ".run/demo", "directory for data, logs and credentials; each run begins by emptying it")
	flags.StringVar(&opts.kubeconfig, "kubeconfig", "", "use this cluster, as its administrator, instead of starting one")
	flags.BoolVar(&opts.once, "once", false, "end after the show, with exit code 0 if everything happened as it should")
	flags.BoolVar(&opts.webhook, "webhook", true, "let the API server ask stageset-admission, if it can reach this machine")
	flags.StringVar(&opts.part, "part", "", "run this part alone, with what others have left in --dir, which is not emptied")
	flags.StringVar(&opts.readyPart, "ready", "", "exit with code 0 if this part is ready")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	for _, name := range []string{opts.part, opts.readyPart} {
		if _, known := parts[name]; name != "" && !known {
			return options{}, fmt.Errorf("there is no part %q, but %s", name,
				strings.Join(slices.Sorted(maps.Keys(parts)), ", "))
		}
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	for _, path := range []*string{&opts.dir, &opts.kubeconfig} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return options{}, err
		}
		*path = absolute
	}
	return opts, nil
}

package up

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// options is what the command line says.
type options struct {
	dir        string // everything that is kept, and the logs
	kubeconfig string // where the administrator's kubeconfig is written
	withNodes  bool   // scheduler, KWOK and nodes too
	kwok       string // KWOK's binary
	stopOnEOF  bool   // the end of standard input is a signal to stop
	restart    bool   // a component that ends by itself is started again
	issuer     string // what the apiserver calls itself in tokens
	trust      string // an AuthenticationConfiguration
}

// Main is the command "up": it returns the exit code. SIGINT, SIGTERM and SIGHUP stop everything and are a success.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	opts, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "controlplane up: %v\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// A second signal ends this process at once, and the kernel its children.
	context.AfterFunc(ctx, stop)
	if err := run(ctx, opts, stdin, stdout); err != nil {
		fmt.Fprintf(stderr, "controlplane up: %v\n", err)
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (options, error) {
	var opts options
	flags := flag.NewFlagSet("controlplane up", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&opts.dir, "dir", "", "directory of the cluster's data, keys and logs; made if missing, resumed if not")
	flags.StringVar(&opts.kubeconfig, "kubeconfig", "", "file for the administrator's kubeconfig (default DIR/kubeconfig)")
	flags.BoolVar(&opts.withNodes, "with-nodes", false, "also run the scheduler, KWOK and two nodes, so that Pods become Ready")
	flags.StringVar(&opts.kwok, "kwok", "", "KWOK's binary (default the file kwok beside this binary)")
	flags.BoolVar(&opts.stopOnEOF, "stop-on-eof", false, "stop when standard input ends, for a parent that may be killed")
	flags.BoolVar(&opts.restart, "restart", false, "start a component again that ends once everything is ready, as a kubelet does")
	flags.StringVar(&opts.issuer, "issuer", "https://kubernetes.default.svc",
		"URL that is the issuer of service accounts' tokens")
	flags.StringVar(&opts.trust, "authentication-config", "",
		"file with an AuthenticationConfiguration: whose tokens are taken besides; of another --issuer than this one")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if opts.dir == "" {
		return options{}, errors.New("--dir is required: where the cluster keeps its data")
	}
	return opts.complete()
}

// complete makes paths absolute, because the components run in the directory of the cluster.
func (o options) complete() (options, error) {
	self, err := os.Executable()
	if err != nil {
		return options{}, err
	}
	if o.kubeconfig == "" {
		o.kubeconfig = filepath.Join(o.dir, "kubeconfig")
	}
	if o.kwok == "" {
		o.kwok = filepath.Join(filepath.Dir(self), "kwok")
	}
	for _, path := range []*string{&o.dir, &o.kubeconfig, &o.kwok, &o.trust} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return options{}, err
		}
	}
	if _, err := os.Stat(o.kwok); o.withNodes && err != nil {
		return options{}, fmt.Errorf("--with-nodes needs KWOK: %w (make bin/kwok, or name another with --kwok)", err)
	}
	return o, nil
}

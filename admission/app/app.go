package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/stageset/stageset/admission/certs"
)

// Main parses the arguments, runs until ctx is done or something fails, and returns the exit code of the process: 0 after
// an orderly end, 1 after a failure, 2 for arguments that make no sense.
func Main(ctx context.Context, arguments []string, stderr io.Writer) int {
	options := &Options{}
	flags := pflag.NewFlagSet("stageset-admission", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	options.AddFlags(flags)
	if err := flags.Parse(arguments); errors.Is(err, pflag.ErrHelp) {
		return 0
	} else if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	err := options.Validate()
	if flags.NArg() > 0 {
		err = errors.Join(err, fmt.Errorf("there are only flags, but here is an argument: %q", flags.Arg(0)))
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	options.Complete()
	logger := newLogger(options, stderr)
	if err := Run(ctx, options, logger); err != nil {
		logger.Error(err, "stageset-admission failed")
		return 1
	}
	return 0
}

// Run serves the webhooks until ctx is done, and then for the drain delay. Options must be complete and valid.
func Run(ctx context.Context, options *Options, logger logr.Logger) error {
	set, err := compilePolicies(ctx, options)
	if err != nil {
		return err
	}
	config, err := restConfig(options)
	if err != nil {
		return err
	}
	if err := preflight(ctx, config, options); err != nil {
		return err
	}
	directory, err := os.MkdirTemp("", "stageset-admission-")
	if err != nil {
		return fmt.Errorf("making a directory for the public certificate: %w", err)
	}
	defer func() { _ = os.RemoveAll(directory) }()

	ending := &drain{delay: options.DrainDelay, clock: clock.RealClock{}, logger: logger}
	mgr, err := assemble(config, parts{
		options: options, logger: logger, ending: ending, policies: set,
		keyring: certs.NewKeyring(certsOptions(options, directory)),
	})
	if err != nil {
		return err
	}
	return ending.Run(ctx, mgr.Start)
}

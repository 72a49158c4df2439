package app

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/stageset/stageset/admission/certs"
	"github.com/stageset/stageset/process"
)

// program is the name of the binary, and its user agent.
const program = "stageset-admission"

// gcPercent lets much become garbage before it is collected: what is in use is little, the compiled policies and the caches of
// watches, and each request leaves much. With Go's own 100, a sixth of the time goes into marking the same compiled policies
// again. It costs about 30 MB.
const gcPercent = 400

// Main parses the arguments, runs until ctx is done or something fails, and returns the exit code of the process.
func Main(ctx context.Context, arguments []string, stderr io.Writer) int {
	options := &Options{}
	if code, run := process.Parse(program, arguments, options, stderr); !run {
		return code
	}
	options.Complete()
	process.CollectGarbage(gcPercent)
	logger := options.Logging.Start(stderr)
	if err := Run(ctx, options, logger); err != nil {
		logger.Error(err, program+" failed")
		return process.ExitFailure
	}
	return process.ExitOK
}

// Run serves the webhooks until ctx is done, and then for the drain delay. Options must be complete and valid.
func Run(ctx context.Context, options *Options, logger logr.Logger) error {
	rules, err := loadRules(ctx, options)
	if err != nil {
		return err
	}
	config, err := process.RESTConfig(options.Kubeconfig, program)
	if err != nil {
		return err
	}
	if err := process.MeasureRequests(config); err != nil {
		return err
	}
	if err := preflight(ctx, config, options); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", program+"-")
	if err != nil {
		return fmt.Errorf("making a directory for the certificate rotator: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()

	tracing, flush, err := options.Tracing.Start(ctx, program, logger)
	if err != nil {
		return err
	}
	defer flush()
	ending := &drain{delay: options.DrainDelay, clock: clock.RealClock{}, logger: logger}
	mgr, err := assemble(config, parts{
		options: options, logger: logger, tracing: tracing, ending: ending, rules: rules,
		keyring: certs.NewKeyring(certsOptions(options, scratch)),
	})
	if err != nil {
		return err
	}
	return ending.Run(ctx, mgr.Start)
}

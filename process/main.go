package process

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"
)

// Options are the flags of a program.
type Options interface {
	// AddFlags adds the flags with their defaults.
	AddFlags(flags *pflag.FlagSet)
	// Validate names every flag whose value cannot be used.
	Validate() error
}

// Exit codes of a program.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2
)

// Parse fills options from the arguments and returns ExitOK and true if the program is to run; otherwise it has said why
// not on stderr, and the code is what to exit with: ExitOK for --help and --version, ExitUsage for arguments that make no
// sense.
func Parse(program string, arguments []string, options Options, stderr io.Writer) (code int, run bool) {
	flags := pflag.NewFlagSet(program, pflag.ContinueOnError)
	flags.SetOutput(stderr)
	options.AddFlags(flags)
	show := flags.Bool("version", false, "print version and revision, and end")
	err := flags.Parse(arguments)
	if errors.Is(err, pflag.ErrHelp) {
		return ExitOK, false
	}
	if err == nil && *show {
		fmt.Fprintln(stderr, program, describeVersion())
		return ExitOK, false
	}
	if err == nil {
		err = options.Validate()
		if flags.NArg() > 0 {
			err = errors.Join(err, fmt.Errorf("there are only flags, but here is an argument: %q", flags.Arg(0)))
		}
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return ExitUsage, false
	}
	return ExitOK, true
}

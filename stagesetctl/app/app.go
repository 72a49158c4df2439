// Package app is the command line of stagesetctl: commands, flags, output and exit codes. What a policy means is decided by
// package policies alone. It never writes to a cluster, and reads from one only where a command says so.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stageset/stageset/stagesetctl/files"
)

// The exit codes of the program.
const (
	// ExitOK is that nothing is wrong.
	ExitOK = 0
	// ExitFindings is that something is wrong with policies or objects, or that a test failed. It is in the output.
	ExitFindings = 1
	// ExitFailure is that the command could not do its work: unknown flags, files that cannot be read, no cluster.
	ExitFailure = 2
)

// errFindings is that the output says what is wrong.
var errFindings = errors.New("something is wrong")

// Streams are the standard streams of the program.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// cli is what all commands have in common.
type cli struct {
	Streams
	// reader reads all files that the command names.
	reader *files.Reader
}

// Main runs the command that arguments name, and returns the exit code of the process. What is wrong is on Err, a line for
// each problem.
func Main(ctx context.Context, arguments []string, streams Streams) int {
	root := NewCommand(streams)
	root.SetArgs(arguments)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, errFindings):
		return ExitFindings
	case isProblems(err):
		_, _ = fmt.Fprintln(streams.Err, err)
		return ExitFindings
	default:
		for line := range strings.Lines(err.Error()) {
			if line = strings.TrimSpace(line); line != "" {
				_, _ = fmt.Fprintf(streams.Err, "%s: %s\n", root.Name(), line)
			}
		}
		return ExitFailure
	}
}

// isProblems tells whether err is just about what is in files. An error that also has problems in it is not.
func isProblems(err error) bool {
	_, ok := err.(files.Problems)
	return ok
}

// NewCommand is the program with all its commands.
func NewCommand(streams Streams) *cobra.Command {
	c := &cli{Streams: streams, reader: &files.Reader{In: streams.In}}
	root := &cobra.Command{
		Use:           "stagesetctl",
		Short:         "Check, test and explain StageSet policies, and print the RBAC of releases",
		SilenceErrors: true,
		SilenceUsage:  true,
		Long: `Check, test and explain StageSet policies, with the code that admission and reconciler decide with, and print the RBAC
that a release needs.

The exit code is 0 if nothing is wrong, 1 if something is wrong with policies or objects, and 2 if the command could not
do its work.`,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return fmt.Errorf("%w: see \"%s --help\"", err, command.CommandPath())
	})
	root.AddCommand(c.policyCommand(), c.grantCommand(), c.rbacCommand(), c.versionCommand())
	return root
}

func (c *cli) policyCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "policy",
		Short: "Check, test, show and explain policies",
		// Without something to run, a command that there is not would be no error.
		Args:                  cobra.NoArgs,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		DisableFlagsInUseLine: true,
	}
	command.AddCommand(c.testCommand(), c.checkCommand(), c.listCommand(), c.showCommand(),
		c.explainCommand(), c.exportCommand())
	return command
}

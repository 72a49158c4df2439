package app

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stageset/stageset/stagesetctl/files"
)

// completionTimeout bounds how long the shell waits for the names of policies.
const completionTimeout = 3 * time.Second

// exactly is for commands that take n arguments, which are what.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(command *cobra.Command, arguments []string) error {
		if len(arguments) != n {
			return misused(command, "takes %s, and not %s", what, plural(len(arguments), "argument", "arguments"))
		}
		return nil
	}
}

// some is for commands that take at least one argument, which are what.
func some(what string) cobra.PositionalArgs {
	return func(command *cobra.Command, arguments []string) error {
		if len(arguments) == 0 {
			return misused(command, "takes %s", what)
		}
		return nil
	}
}

// misused says what is wrong with how a command is called, and where it is explained.
func misused(command *cobra.Command, format string, args ...any) error {
	_, name, _ := strings.Cut(command.CommandPath(), " ")
	return fmt.Errorf("%s "+format+": see \"%s --help\"", append(append([]any{name}, args...), command.CommandPath())...)
}

// oneOf tells whether the value of a flag is allowed. The empty value is not listed.
func oneOf(flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	listed := slices.DeleteFunc(slices.Clone(allowed), func(one string) bool { return one == "" })
	last := len(listed) - 1
	return fmt.Errorf("--%s is %q: it must be %s or %s", flag, value, strings.Join(listed[:last], ", "), listed[last])
}

// complete lets the shell complete the values of a flag.
func complete(command *cobra.Command, flag string, values ...string) {
	completeBy(command, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completeBy lets the shell complete a flag.
func completeBy(command *cobra.Command, flag string, by cobra.CompletionFunc) {
	if err := command.RegisterFlagCompletionFunc(flag, by); err != nil {
		panic(err) // there is no such flag, which the first test notices
	}
}

// completeFiles lets the shell complete the names of files.
func completeFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

// completeFileFlags lets the shell complete the names of files for flags.
func completeFileFlags(command *cobra.Command, flags ...string) {
	for _, flag := range flags {
		completeBy(command, flag, completeFiles)
	}
}

// noInput reads files for the shell, which waits, and has nothing to be read.
func noInput() *files.Reader { return &files.Reader{In: strings.NewReader("")} }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

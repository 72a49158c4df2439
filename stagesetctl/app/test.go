package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/stageset/stageset/policies/policytest"
	"github.com/stageset/stageset/stagesetctl/files"
	"github.com/stageset/stageset/stagesetctl/report"
)

// testRun is the flags of "policy test".
type testRun struct {
	question
	objects []string
	builtin bool
	output  string
	verbose bool
}

// writers write an outcome, by the value of --output.
var writers = map[string]func(w io.Writer, suites []report.Suite, verbose bool) error{
	"text":  report.Text,
	"json":  func(w io.Writer, suites []report.Suite, _ bool) error { return report.JSON(w, suites) },
	"junit": func(w io.Writer, suites []report.Suite, _ bool) error { return report.JUnit(w, suites) },
}

func (c *cli) testCommand() *cobra.Command {
	run := &testRun{}
	command := &cobra.Command{
		Use:   "test PATH...",
		Short: "Run the tests in policies, or evaluate policies on objects",
		Long: `Run the tests that policies carry. With --object, evaluate the policies on the StageSets in files instead, as if
they were created: mutations first, then validations. What is denied is a failure, warnings are shown. Policies about
sources and rendered objects have nothing to say about them.

PATH is a file, a directory, or - for standard input. Files may have several documents; only StageSetPolicies count.`,
		Example: `  stagesetctl policy test policies/
  stagesetctl policy test policies/ --output junit > policies.xml
  stagesetctl policy test --builtin --object stageset.yaml --policy-config policy-config.yaml`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeFiles,
		RunE: func(cmd *cobra.Command, paths []string) error {
			write, known := writers[run.output]
			if !known {
				return fmt.Errorf("--output is %q: it must be text, json or junit", run.output)
			}
			suites, err := c.runTests(cmd.Context(), run, paths)
			if err != nil {
				return err
			}
			if err := write(c.Out, suites, run.verbose); err != nil {
				return err
			}
			if report.Failed(suites) {
				return errFindings
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringArrayVar(&run.objects, "object", nil, "File or directory with StageSets to evaluate. May be repeated.")
	flags.BoolVar(&run.builtin, "builtin", false, "Also take the built-in policies, as --policy-config sets them.")
	flags.StringVarP(&run.output, "output", "o", "text", "Format of the outcome: text, json or junit.")
	flags.BoolVarP(&run.verbose, "verbose", "v", false, "Show what passed, too.")
	run.addFlags(flags)
	return command
}

func (c *cli) runTests(ctx context.Context, run *testRun, paths []string) ([]report.Suite, error) {
	if len(run.objects) == 0 {
		list, err := c.loadPolicies(ctx, paths, run.builtin)
		if err != nil {
			return nil, err
		}
		return testPolicies(ctx, list)
	}
	var list []files.Policy
	var err error
	if len(paths) > 0 || !run.builtin {
		if list, err = c.loadPolicies(ctx, paths, false); err != nil {
			return nil, err
		}
	}
	asked, err := run.read(c.reader)
	if err != nil {
		return nil, err
	}
	documents, err := c.reader.Read(run.objects...)
	if err != nil {
		return nil, err
	}
	documents = slices.DeleteFunc(documents, func(d files.Document) bool { return !isStageSet(d) })
	if len(documents) == 0 {
		return nil, errors.New("--object: there is no StageSet in these files")
	}
	compiled, err := compileRules(ctx, list, asked, run.builtin)
	if err != nil {
		return nil, err
	}
	return compiled.judge(ctx, asked, documents), nil
}

// testPolicies runs the tests that policies carry.
func testPolicies(ctx context.Context, list []files.Policy) ([]report.Suite, error) {
	var suites []report.Suite
	for _, policy := range list {
		suite := report.Suite{Name: policy.Parsed.Name, Path: policy.Path, Line: policy.Line}
		results, err := policytest.Run(ctx, &policy.Parsed)
		if err != nil {
			problems, err := locate(policy, err)
			if err != nil {
				return nil, err
			}
			suite.Cases = []report.Case{{Name: "compiles", Failures: []string{problems.Sort().Error()}}}
		}
		for _, result := range results {
			suite.Cases = append(suite.Cases, report.Case{Name: result.Test, Failures: result.Failures})
		}
		suites = append(suites, suite)
	}
	return suites, nil
}

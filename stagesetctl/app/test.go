package app

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
	"text":     report.Text,
	outputJSON: func(w io.Writer, suites []report.Suite, _ bool) error { return report.JSON(w, suites) },
	"junit":    func(w io.Writer, suites []report.Suite, _ bool) error { return report.JUnit(w, suites) },
}

func (c *cli) testCommand() *cobra.Command {
	run := &testRun{}
	command := &cobra.Command{
		Use:   "test PATH...",
		Short: "Run the tests in policies, or evaluate policies on objects",
		Long: `Run the tests that policies carry. With --object, evaluate the policies on the objects in files instead:

- a StageSet, as if it were created: the defaults of the API server, mutations, the schema, then the rules;
- a source (GitRepository, OCIRepository, Bucket, ExternalArtifact), as that of a stage;
- everything else, as what a stage renders: give it the output of "kustomize build", or of "helm template".

With --stageset, everything is what that StageSet renders, but for the sources that its stages use. What is denied is a
failure; warnings are shown.

PATH is a file, a directory, or - for standard input. Files may have several documents, and lists; only StageSetPolicies
count.`,
		Example: `  stagesetctl policy test policies/
  stagesetctl policy test policies/ --output junit > policies.xml
  stagesetctl policy test --builtin --object stageset.yaml --policy-config policy-config.yaml
  kubectl get stagesets -A -o yaml | stagesetctl policy test few-stages.yaml --object -
  kustomize build app | stagesetctl policy test images.yaml --object - --stageset stageset.yaml --stage app`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeFiles,
		RunE: func(cmd *cobra.Command, paths []string) error {
			if err := oneOf("output", run.output, "text", outputJSON, "junit"); err != nil {
				return err
			}
			if err := run.needsObject(); err != nil {
				return err
			}
			suites, err := c.runTests(cmd.Context(), run, paths)
			if err != nil {
				return err
			}
			if err := writers[run.output](c.Out, suites, run.verbose); err != nil {
				return err
			}
			if report.Failed(suites) {
				return errFindings
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringArrayVar(&run.objects, "object", nil, "File or directory with objects to evaluate. May be repeated.")
	flags.BoolVar(&run.builtin, "builtin", false, "Also take the built-in policies, for objects as --policy-config sets them.")
	flags.StringVarP(&run.output, "output", "o", "text", "Format of the outcome: text, json or junit.")
	flags.BoolVarP(&run.verbose, "verbose", "v", false, "Show what passed, too.")
	run.addFlags(command)
	complete(command, "output", "text", outputJSON, "junit")
	completeFileFlags(command, "object")
	return command
}

// needsObject refuses flags about objects where there are none: the tests in policies say everything themselves.
func (run *testRun) needsObject() error {
	var wrong error
	run.flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed && len(run.objects) == 0 && wrong == nil {
			wrong = fmt.Errorf("--%s is about objects: name them with --object", flag.Name)
		}
	})
	return wrong
}

func (c *cli) runTests(ctx context.Context, run *testRun, paths []string) ([]report.Suite, error) {
	if len(run.objects) > 0 {
		return c.judge(ctx, run, paths)
	}
	beside, err := builtIn(run.builtin)
	if err != nil {
		return nil, err
	}
	list, err := c.loadPolicies(ctx, paths, beside)
	if err != nil {
		return nil, err
	}
	return testPolicies(ctx, list)
}

// judge evaluates policies on objects.
func (c *cli) judge(ctx context.Context, run *testRun, paths []string) ([]report.Suite, error) {
	asked, err := run.read(ctx, c.reader)
	if err != nil {
		return nil, err
	}
	beside, err := asked.enabled(run.builtin)
	if err != nil {
		return nil, err
	}
	list, err := c.loadPolicies(ctx, paths, beside)
	if err != nil {
		return nil, err
	}
	var documents []files.Document
	for _, path := range run.objects {
		found, err := all(c.reader, "object", path)
		if err != nil {
			return nil, err
		}
		documents = append(documents, found...)
	}
	compiled, err := compileRules(ctx, list, asked)
	if err != nil {
		return nil, err
	}
	suites, err := compiled.judge(ctx, asked, documents)
	if err != nil {
		return nil, err
	}
	for _, suite := range suites {
		if len(suite.Cases) > 0 {
			return suites, nil
		}
	}
	return nil, errors.New("none of these policies is about any of these objects")
}

// testPolicies runs the tests that policies carry.
func testPolicies(ctx context.Context, list []files.Policy) ([]report.Suite, error) {
	var suites []report.Suite
	for _, policy := range list {
		suite := report.Suite{Name: policy.Parsed.Name, Path: policy.Path, Line: policy.Line, Cases: []report.Case{}}
		results, err := policytest.Run(ctx, &policy.Parsed)
		problems, err := locate(policy, err)
		if err != nil {
			return nil, err
		}
		if len(problems) > 0 {
			suite.Cases = []report.Case{{Name: "compiles", Line: policy.Line, Failures: lines(problems.Sort())}}
		}
		for _, result := range results {
			at := policy.At(fmt.Sprintf("spec.tests[%s]", result.Test), "")
			suite.Cases = append(suite.Cases, report.Case{Name: result.Test, Line: at.Line, Failures: result.Failures})
		}
		suites = append(suites, suite)
	}
	return suites, nil
}

package process_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/stageset/stageset/process"
)

// options is a program's, with one flag that may not be negative.
type options struct{ number int }

func (o *options) AddFlags(flags *pflag.FlagSet) { flags.IntVar(&o.number, "number", 7, "a number") }

func (o *options) Validate() error {
	if o.number < 0 {
		return errors.New("--number must not be negative")
	}
	return nil
}

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		code      int
		run       bool
		number    int      // once parsed
		output    []string // each in the output; nil for no output
	}{
		"defaults":          {nil, process.ExitOK, true, 7, nil},
		"a flag":            {[]string{"--number=3"}, process.ExitOK, true, 3, nil},
		"help":              {[]string{"--help"}, process.ExitOK, false, 0, []string{"--number int", "a number (default 7)"}},
		"an unknown flag":   {[]string{"--nope"}, process.ExitUsage, false, 0, []string{"unknown flag: --nope"}},
		"not a number":      {[]string{"--number=x"}, process.ExitUsage, false, 0, []string{`"x"`, "--number"}},
		"an argument":       {[]string{"serve"}, process.ExitUsage, false, 0, []string{`an argument: "serve"`}},
		"a value":           {[]string{"--number=-1"}, process.ExitUsage, false, 0, []string{"--number must not be negative"}},
		"both, in one step": {[]string{"--number=-1", "serve"}, process.ExitUsage, false, 0, []string{"negative\n", `"serve"`}},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			var parsed options
			code, run := process.Parse("program", test.arguments, &parsed, &stderr)
			if code != test.code || run != test.run {
				t.Errorf("code %d, run %t; want %d, %t", code, run, test.code, test.run)
			}
			if run && parsed.number != test.number {
				t.Errorf("number %d, want %d", parsed.number, test.number)
			}
			if test.output == nil && stderr.Len() > 0 {
				t.Errorf("unexpected output: %s", &stderr)
			}
			for _, want := range test.output {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("the output lacks %q:\n%s", want, &stderr)
				}
			}
		})
	}
}

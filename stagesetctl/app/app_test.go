package app_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/stageset/stageset/policies/builtin"
	"github.com/stageset/stageset/stagesetctl/app"
)

var write = flag.Bool("write", false, "write the transcripts instead of comparing them")

// TestTranscripts runs the commands in the transcripts, which show what they print, and how they end. Twice, because the
// same command always prints the same.
func TestTranscripts(t *testing.T) {
	transcripts, err := filepath.Glob("testdata/*.transcript")
	if err != nil || len(transcripts) == 0 {
		t.Fatal("there are no transcripts", err)
	}
	for i, path := range transcripts {
		if transcripts[i], err = filepath.Abs(path); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir("testdata")
	t.Setenv("KUBECONFIG", "nowhere")
	for _, path := range transcripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".transcript"), func(t *testing.T) {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(content))
			if *write {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(got, play(t, got)); diff != "" {
				t.Errorf("the second time (-first +second):\n%s", diff)
			}
			if diff := cmp.Diff(string(content), got); diff != "" && !*write {
				t.Errorf("transcript (-want +got):\n%s", diff)
			}
		})
	}
}

const prompt = "$ stagesetctl "

// wholes are whole StageSets in what is printed, with all defaults of their schema: which those are is not of interest here.
var wholes = []*regexp.Regexp{
	regexp.MustCompile(`(?m)(  (?:object|oldObject)\.spec(?:\.stages)?  =>  )[{[].*$`),
	regexp.MustCompile(`(?ms)^(    "object": )\{.*?^    \}`),
}

// play is the transcript of the commands in another one. Comments stay.
func play(t *testing.T, transcript string) string {
	t.Helper()
	var text strings.Builder
	for line := range strings.Lines(transcript) {
		line = strings.TrimSuffix(line, "\n")
		if command, ok := strings.CutPrefix(line, prompt); ok {
			out, stderr, code := run(t, "", strings.Fields(command)...)
			for _, whole := range wholes {
				out = whole.ReplaceAllString(out, "$1…")
			}
			fmt.Fprintf(&text, "%s\n%s", line, indented("", out)+indented("! ", stderr))
			fmt.Fprintf(&text, "= %d\n\n", code)
		} else if strings.HasPrefix(line, "#") {
			text.WriteString(line + "\n")
		}
	}
	return text.String()
}

func indented(prefix, text string) string {
	if text == "" {
		return ""
	}
	return "  " + prefix + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  "+prefix) + "\n"
}

// run runs stagesetctl with the text in as standard input.
func run(t *testing.T, in string, arguments ...string) (out, stderr string, code int) {
	t.Helper()
	var stdout, errors bytes.Buffer
	code = app.Main(t.Context(), arguments, app.Streams{In: strings.NewReader(in), Out: &stdout, Err: &errors})
	return stdout.String(), errors.String(), code
}

// TestStandardInput: a policy need not be in a file.
func TestStandardInput(t *testing.T) {
	text, err := os.ReadFile("testdata/policies/two-stages.yaml")
	if err != nil {
		t.Fatal(err)
	}
	out, stderr, code := run(t, string(text), "policy", "check", "-")
	if out != "2 policies are fine\n" || stderr != "" || code != app.ExitOK {
		t.Errorf("got %q, %q, %d", out, stderr, code)
	}
}

// TestCompletion: each shell gets a script.
func TestCompletion(t *testing.T) {
	for shell, want := range map[string]string{
		"bash": "complete -o default -F __start_stagesetctl stagesetctl", "fish": "complete -c stagesetctl",
		"powershell": "Register-ArgumentCompleter -CommandName 'stagesetctl'", "zsh": "#compdef stagesetctl",
	} {
		out, stderr, code := run(t, "", "completion", shell)
		if !strings.Contains(out, want) || stderr != "" || code != app.ExitOK {
			t.Errorf("%s: %q is not in what is printed; %q, %d", shell, want, stderr, code)
		}
	}
}

// TestCompleted: what those scripts ask the program for. The last line is how the shell uses it: 4 is no files, 8 files with
// these endings.
func TestCompleted(t *testing.T) {
	t.Chdir("testdata")
	t.Setenv("KUBECONFIG", "nowhere")
	for line, want := range map[string]string{
		"policy show --builtin ":                   "author-may-use-service-account bounded-durations",
		"policy show --builtin one ":               ":4",
		"policy show ":                             ":4", // there is no cluster
		"policy explain policies --policy ":        "two-stages interval :4",
		"policy explain --builtin --policy ":       "author-may-use-service-account",
		"policy explain broken --policy ":          ":4",
		"policy explain - --policy ":               ":4", // nobody waits for input
		"policy test - --stageset - --stage ":      ":4",
		"policy explain policies --operation ":     "CREATE UPDATE DELETE :4",
		"policy explain policies --object ":        "yaml yml json :8",
		"policy test ":                             "yaml yml json :8",
		"policy check ":                            "yaml yml json :8",
		"policy test policies --output ":           "text json junit :4",
		"policy list --output ":                    "yaml json name :4",
		"policy export --to ":                      "validatingadmissionpolicy :4",
		"policy export --builtin --policy-config ": "yaml yml json :8",
		"policy test policies --namespace-object ": "yaml yml json :8",
		"policy test policies --object x --user ":  ":4",
		"policy ": "check",
		"":        "completion",
		"policy test policies --stageset x --stage ":                     ":4",
		"policy test policies --stageset release/stageset.yaml --stage ": "base app charts :4",
	} {
		arguments := append([]string{"__complete"}, strings.Split(line, " ")...)
		out, _, code := run(t, "", arguments...)
		if got := strings.Join(strings.Fields(out), " "); !strings.HasPrefix(got, want) || code != app.ExitOK {
			t.Errorf("%q is completed to %q, want %q; %d", line, got, want, code)
		}
	}
}

// TestHelp: every command says what it does, how it is used, and gives an example that has its name.
func TestHelp(t *testing.T) {
	var visit func(command *cobra.Command)
	visit = func(command *cobra.Command) {
		for _, sub := range command.Commands() {
			if sub.Name() != "completion" && sub.Name() != "help" {
				visit(sub)
			}
		}
		out, stderr, code := run(t, "", append(strings.Fields(command.CommandPath())[1:], "--help")...)
		if stderr != "" || code != app.ExitOK {
			t.Errorf("%s --help: %q, %d", command.CommandPath(), stderr, code)
		}
		for line := range strings.Lines(command.Long + "\n" + command.Example) {
			if n := len(strings.TrimRight(line, "\n")); n > 125 {
				t.Errorf("%s --help has a line of %d characters: %s", command.CommandPath(), n, line)
			}
		}
		if command.HasSubCommands() || command.Name() == "version" {
			return
		}
		if command.Long == "" || !strings.Contains(command.Example, command.CommandPath()) || !strings.Contains(out, "Examples:") {
			t.Errorf("%s --help does not explain, or has no example:\n%s", command.CommandPath(), out)
		}
	}
	visit(app.NewCommand(app.Streams{}))
}

// TestVersion: the version says which CEL it is.
func TestVersion(t *testing.T) {
	out, stderr, code := run(t, "", "version")
	if !strings.HasPrefix(out, "stagesetctl ") || stderr != "" || code != app.ExitOK {
		t.Errorf("got %q, %q, %d", out, stderr, code)
	}
}

// TestExplainEnds: what would take forever is interrupted, and what there is until then is shown.
func TestExplainEnds(t *testing.T) {
	t.Chdir(t.TempDir())
	stages := "object.spec.stages"
	expression := "true"
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		expression = fmt.Sprintf("%s.all(%s, %s)", stages, name, expression)
	}
	var list []string
	for i := range 64 {
		list = append(list, fmt.Sprintf("{name: s%d, sourceRef: {name: app}}", i))
	}
	stageSet := "apiVersion: stages.metio.wtf/v1\nkind: StageSet\nmetadata: {name: app}\n" +
		"spec: {stages: [" + strings.Join(list, ", ") + "]}\n"
	explain := func(ctx context.Context, expression string) (out, stderr string, code int) {
		t.Helper()
		policy := "apiVersion: stages.metio.wtf/v1alpha1\nkind: StageSetPolicy\nmetadata: {name: endless}\n" +
			"spec: {validations: [{name: r, message: m, expression: '" + expression + "'}]}\n"
		for name, text := range map[string]string{"policy.yaml": policy, "stageset.yaml": stageSet} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var printed, failed bytes.Buffer
		arguments := strings.Fields("policy explain policy.yaml --object stageset.yaml")
		code = app.Main(ctx, arguments, app.Streams{Out: &printed, Err: &failed})
		return printed.String(), failed.String(), code
	}
	began := time.Now()
	if out, stderr, code := explain(t.Context(), "true"); code != app.ExitOK {
		t.Fatalf("got %d\n%s\n%s", code, out, stderr)
	}
	// Much longer than everything but the evaluation takes on this machine.
	ctx, cancel := context.WithTimeout(t.Context(), max(time.Second, 10*time.Since(began)))
	defer cancel()
	out, stderr, code := explain(ctx, expression)
	const want = "policy.yaml:4  spec.validations[r].expression\n  = error: was not evaluated in time\n"
	if !strings.HasPrefix(out, want) || stderr != "" || code != app.ExitOK {
		t.Errorf("got %d\n%s\n%s", code, out, stderr)
	}
}

// TestExportBuiltIn: the built-in policies are exported as the policy config sets them, and what of them cannot be is said.
func TestExportBuiltIn(t *testing.T) {
	t.Chdir("testdata")
	out, stderr, code := run(t, "", strings.Fields("policy export --builtin --policy-config policy-config.yaml")...)
	for _, part := range []string{
		"kind: MutatingAdmissionPolicy\nmetadata:\n  name: default-service-account\n", `"defaultServiceAccount": dyn("deployer")`,
		"kind: ValidatingAdmissionPolicyBinding\nmetadata:\n  name: bounded-durations\n", `!(request.namespace in ["default"])`,
	} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is not in what is exported:\n%s", part, out)
		}
	}
	if strings.Contains(out, "no-self-dependency") || code != app.ExitOK {
		t.Errorf("exported, with a rule that is off: %d\n%s", code, out)
	}
	for _, name := range []string{"reserved-namespaces: spec.target: is Manifest", "author-may-use-service-account: "} {
		if !strings.Contains(stderr, "left out: policy "+name) {
			t.Errorf("it is not said that %s is left out:\n%s", name, stderr)
		}
	}
}

// TestBuiltIn: the built-in policies are listed, shown and tested without a cluster, and judge objects as the policy config
// sets them.
func TestBuiltIn(t *testing.T) {
	t.Chdir("testdata")
	list, err := builtin.Policies()
	if err != nil {
		t.Fatal(err)
	}
	listed, _, _ := run(t, "", "policy", "list", "--builtin")
	tested, _, code := run(t, "", "policy", "test", "--builtin")
	if code != app.ExitOK {
		t.Errorf("their tests fail:\n%s", tested)
	}
	for _, policy := range list {
		if !strings.Contains(listed, "\n"+policy.Name+" ") || !strings.Contains(tested, "ok    "+policy.Name+" ") {
			t.Errorf("%s is missing in\n%s\n%s", policy.Name, listed, tested)
		}
		shown, _, _ := run(t, "", "policy", "show", policy.Name, "--builtin")
		if checked, _, code := run(t, shown, "policy", "test", "-"); code != app.ExitOK {
			t.Errorf("what is shown of %s does not pass its tests:\n%s", policy.Name, checked)
		}
	}
	if _, stderr, code := run(t, "", "policy", "show", "nothing", "--builtin"); code != app.ExitFailure ||
		!strings.Contains(stderr, `there is no built-in policy "nothing"; there are: `) {
		t.Errorf("a policy that there is not: %d, %s", code, stderr)
	}

	const judge = "policy test --builtin --object objects -v"
	strict, _, code := run(t, "", strings.Fields(judge)...)
	const missing = "service-account-required/stages: stages without an account: all;"
	if code != app.ExitFindings || !strings.Contains(strict, missing) {
		t.Errorf("without a config: %d\n%s", code, strict)
	}
	lenient, _, code := run(t, "", strings.Fields(judge+" --policy-config policy-config.yaml")...)
	if code != app.ExitOK || strings.Contains(lenient, "no-self-dependency") {
		t.Errorf("with a config that names an account: %d\n%s", code, lenient)
	}
}

package builtin_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/builtin"
)

// TestFlags: a flag that is given takes the place of its key, and one that is not leaves it as it is.
func TestFlags(t *testing.T) {
	const file = `
platformNamespaces: []
defaultServiceAccount: of-the-file
allowControllerIdentity: [file]
noCrossNamespaceRefs: true
`
	of := func(account string, own []string, confined bool) policies.Config {
		return policies.Config{
			PlatformNamespaces: []string{}, ReservedNamespaces: []string{"home"},
			DefaultServiceAccount: account, AllowControllerIdentity: own, NoCrossNamespaceRefs: confined,
		}
	}
	for name, test := range map[string]struct {
		file      string
		arguments []string
		want      policies.Config
	}{
		"the file": {file, nil, of("of-the-file", []string{"file"}, true)},
		"flags instead": {
			file, []string{"--default-service-account=of-the-flag", "--allow-controller-identity=a,b"},
			of("of-the-flag", []string{"a", "b"}, true),
		},
		"flags alone": {
			"platformNamespaces: []", []string{"--no-cross-namespace-refs", "--allow-controller-identity=*"},
			of("", []string{"*"}, true),
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "policy-config.yaml")
			if err := os.WriteFile(path, []byte(test.file), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := parse(t, append(test.arguments, "--policy-config="+path)...).Load("home")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
		})
	}
}

func parse(t *testing.T, arguments ...string) *builtin.Flags {
	t.Helper()
	var flags builtin.Flags
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.AddFlags(set)
	if err := set.Parse(arguments); err != nil {
		t.Fatal(err)
	}
	return &flags
}

func TestFlagsThatCannotBe(t *testing.T) {
	for name, test := range map[string]struct {
		argument, want string
	}{
		"an account":  {"--default-service-account=a/b", `--default-service-account: defaultServiceAccount: "a/b": a lowercase`},
		"a namespace": {"--allow-controller-identity=A", `--allow-controller-identity: allowControllerIdentity[0]: "A": a`},
		"a pattern":   {"--allow-controller-identity=a-*", `--allow-controller-identity: allowControllerIdentity[0]: "a-*"`},
	} {
		t.Run(name, func(t *testing.T) {
			if err := parse(t, test.argument).Validate(); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("error %v, want %s", err, test.want)
			}
		})
	}
	if err := parse(t).Validate(); err != nil {
		t.Errorf("no flags are refused: %v", err)
	}
}

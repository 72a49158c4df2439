package app

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func parseOptions(t *testing.T, arguments ...string) *Options {
	t.Helper()
	options := &Options{}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	options.AddFlags(flags)
	if err := flags.Parse(arguments); err != nil {
		t.Fatal(err)
	}
	return options
}

func TestOptionsCompleteFromNameAndNamespace(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "tools")
	options := parseOptions(t, "--name=blue")
	if err := options.Validate(); err != nil {
		t.Fatalf("the defaults are not valid: %v", err)
	}
	options.Complete()
	if diff := cmp.Diff([]string{"blue-admission.tools.svc"}, options.CertDNSNames); diff != "" {
		t.Errorf("certificate names (-want +got):\n%s", diff)
	}
	settings := certsOptions(options, "")
	if got := settings.Secret.String() + " " + settings.Configuration; got != "tools/blue-admission-tls blue-admission" {
		t.Errorf("Secret and configurations: %s", got)
	}
}

func TestMainRefusesArgumentsThatMakeNoSense(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	for name, test := range map[string]struct {
		arguments []string
		want      []string // each in the output
	}{
		"no namespace":      {nil, []string{"--namespace: is required"}},
		"bad namespace":     {[]string{"--namespace=A_B"}, []string{`--namespace: "A_B": a lowercase`}},
		"bad name":          {[]string{"--namespace=a", "--name=A_B"}, []string{`--name: "A_B": a lowercase`}},
		"long name":         {[]string{"--namespace=a", "--name=" + strings.Repeat("a", 54)}, []string{"at most 53 characters"}},
		"bad port":          {[]string{"--namespace=a", "--webhook-port=65536"}, []string{"--webhook-port: 65536 is not a port"}},
		"bad DNS name":      {[]string{"--namespace=a", "--cert-dns-names=ok,no_t"}, []string{`--cert-dns-names: "no_t"`}},
		"who makes it?":     {[]string{"--namespace=a", "--cert-provider=me"}, []string{`--cert-provider: "me": secret or files`}},
		"files of nowhere":  {[]string{"--namespace=a", "--cert-provider=files"}, []string{"--cert-dir: is required"}},
		"files of nobody":   {[]string{"--namespace=a", "--cert-dir=/a"}, []string{`--cert-dir: "/a" is for`}},
		"renewed at once":   {[]string{"--namespace=a", "--cert-validity=2160h"}, []string{"--cert-validity: 2160h0m0s"}},
		"renewed too late":  {[]string{"--namespace=a", "--cert-renew-before=1s"}, []string{"--cert-renew-before: 1s"}},
		"CA before leaf":    {[]string{"--namespace=a", "--cert-ca-validity=8759h"}, []string{"--cert-ca-validity: 8759h"}},
		"nothing in flight": {[]string{"--namespace=a", "--max-in-flight=0"}, []string{"--max-in-flight: 0: at least 1"}},
		"negative drain":    {[]string{"--namespace=a", "--drain-delay=-1s"}, []string{"--drain-delay: -1s"}},
		"bad log level":     {[]string{"--namespace=a", "--log-level=loud"}, []string{`--log-level is "loud"`}},
		"all at once": {
			[]string{"--max-in-flight=0", "--log-level=loud"}, []string{"--namespace", "--max-in-flight", "--log-level"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			if code := Main(context.Background(), test.arguments, &stderr); code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			for _, want := range test.want {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("the output lacks %q:\n%s", want, stderr.String())
				}
			}
		})
	}
}

func TestMainNamesTheFileItCannotRead(t *testing.T) {
	var stderr bytes.Buffer
	code := Main(context.Background(), []string{"--namespace=a", "--kubeconfig=/nonexistent/file"}, &stderr)
	output := stderr.String()
	if code != 1 || !strings.Contains(output, "--kubeconfig: ") || !strings.Contains(output, "/nonexistent/file") {
		t.Errorf("exit code %d, output:\n%s", code, stderr.String())
	}
}

package process_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/stageset/stageset/process"
)

func TestLoggingFlags(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		want      string // the error; empty for none
	}{
		"defaults":       {nil, ""},
		"all":            {[]string{"--log-level=debug", "--log-format=text"}, ""},
		"unknown level":  {[]string{"--log-level=loud"}, `--log-level is "loud": it must be debug, info, warn or error`},
		"unknown format": {[]string{"--log-format=xml"}, `--log-format is "xml": it must be json or text`},
	} {
		t.Run(name, func(t *testing.T) {
			var logging process.Logging
			flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
			logging.AddFlags(flags)
			if err := flags.Parse(test.arguments); err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := logging.Validate(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// Whoever logs in the process, it is one stream in one format: JSON, one object a line, with the four levels.
func TestEverybodyLogsAlike(t *testing.T) {
	var out bytes.Buffer
	logging := process.Logging{Level: "debug", Format: "json"}
	logger := logging.Start(&out)

	logger.Info("ours", "stage", "one")
	logger.V(3).Info("ours in detail")
	ctrl.Log.Info("the controllers'")
	klog.InfoS("the client's")
	log.Print("the HTTP server's")
	klog.Flush()

	var got []string
	for line := range strings.Lines(out.String()) {
		var entry struct{ Level, Msg, Stage string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		got = append(got, strings.TrimSpace(entry.Level+" "+entry.Msg+" "+entry.Stage))
	}
	want := []string{
		"INFO ours one", "DEBUG ours in detail", "INFO the controllers'", "INFO the client's", "INFO the HTTP server's",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// client-go logs the bodies of requests, with whatever Secrets are in them, from verbosity 8 on: nobody can ask for as much.
func TestBodiesAreNeverLogged(t *testing.T) {
	for level, want := range map[string]bool{"debug": true, "info": false} {
		logging := process.Logging{Level: level, Format: "json"}
		logger := logging.Start(io.Discard)
		if got := logger.V(4).Enabled(); got != want {
			t.Errorf("with --log-level=%s details are logged: %t", level, got)
		}
		if logger.V(8).Enabled() || klog.V(8).Enabled() {
			t.Errorf("with --log-level=%s bodies of requests are logged", level)
		}
	}
}

func TestLevelAndFormat(t *testing.T) {
	var out bytes.Buffer
	logging := process.Logging{Level: "warn", Format: "text"}
	logger := logging.Start(&out)
	logger.Info("not worth a warning")
	logger.Error(nil, "failed", "stage", "one")
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=ERROR msg=failed stage=one") {
		t.Errorf("log:\n%s", got)
	}
}

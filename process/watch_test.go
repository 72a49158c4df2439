package process_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/stageset/stageset/process"
)

func TestWatchFlags(t *testing.T) {
	for name, test := range map[string]struct {
		environment string
		arguments   []string
		want        []string
		wantErr     string
	}{
		"all of the cluster":          {},
		"the flag":                    {"", []string{"--watch-namespaces=a,b"}, []string{"a", "b"}, ""},
		"the environment":             {"a,b", nil, []string{"a", "b"}, ""},
		"the flag, and not the other": {"a,b", []string{"--watch-namespaces=c"}, []string{"c"}, ""},
		// What somebody has left out by mistake must not be all of the cluster.
		"commas":            {",", nil, nil, `--watch-namespaces: "": a lowercase RFC 1123 label`},
		"no namespace":      {"", []string{"--watch-namespaces=A_B"}, nil, `--watch-namespaces: "A_B": a lowercase RFC 1123 label`},
		"a pattern":         {"", []string{"--watch-namespaces=team-*"}, nil, `--watch-namespaces: "team-*": a lowercase`},
		"a namespace twice": {"", []string{"--watch-namespaces=a,b,a"}, nil, `--watch-namespaces: "a" is named twice`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("WATCH_NAMESPACES", test.environment)
			var watch process.Watch
			flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
			watch.AddFlags(flags)
			if err := flags.Parse(test.arguments); err != nil {
				t.Fatal(err)
			}
			err := watch.Validate()
			if test.wantErr != "" {
				if err == nil || !strings.HasPrefix(err.Error(), test.wantErr) {
					t.Errorf("error %v, want %s", err, test.wantErr)
				}
				return
			}
			if diff := cmp.Diff(test.want, watch.Namespaces); err != nil || diff != "" {
				t.Errorf("error %v, namespaces (-want +got):\n%s", err, diff)
			}
		})
	}
}

// What is needed of the whole cluster is needed of each namespace instead, and of nothing else.
func TestPermissionsWithinNamespaces(t *testing.T) {
	needed := []authorizationv1.ResourceAttributes{{Verb: "list", Resource: "pods"}, {Verb: "watch", Resource: "pods"}}
	within := func(namespace string) []authorizationv1.ResourceAttributes {
		return []authorizationv1.ResourceAttributes{
			{Verb: "list", Resource: "pods", Namespace: namespace}, {Verb: "watch", Resource: "pods", Namespace: namespace},
		}
	}
	for name, test := range map[string]struct {
		namespaces []string
		want       []authorizationv1.ResourceAttributes
	}{
		"all of the cluster": {nil, needed},
		"two namespaces":     {[]string{"a", "b"}, append(within("a"), within("b")...)},
	} {
		t.Run(name, func(t *testing.T) {
			watch := process.Watch{Namespaces: test.namespaces}
			if diff := cmp.Diff(test.want, watch.Within(needed)); diff != "" {
				t.Errorf("permissions (-want +got):\n%s", diff)
			}
		})
	}
}

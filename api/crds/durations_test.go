package crds

import (
	"encoding/json"
	"regexp"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// schema is what this test reads of a schema.
type schema struct {
	Pattern    string            `json:"pattern"`
	MaxLength  int               `json:"maxLength"`
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
}

func (s schema) accepts(t *testing.T, value string) bool {
	t.Helper()
	pattern, err := regexp.Compile(s.Pattern)
	if err != nil {
		t.Fatal(err)
	}
	return pattern.MatchString(value) && len(value) <= s.MaxLength
}

// A stored duration that cannot be read would end the watch of all StageSets, and not only of the one that has it.
func TestEveryDurationThatTheSchemaAcceptsCanBeRead(t *testing.T) {
	content, err := FS.ReadFile("stages.metio.wtf_stagesets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	asJSON, err := yaml.YAMLToJSON(content)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(asJSON, &crd); err != nil {
		t.Fatal(err)
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	for name, field := range map[string]schema{
		"interval": spec["interval"], "retryInterval": spec["retryInterval"], "timeout": spec["timeout"],
		"stages[].timeout": spec["stages"].Items.Properties["timeout"],
	} {
		for value, accepted := range map[string]bool{
			"15m": true, "1h30m15s": true, "1.5h": true, "500ms": true, "100000s": true,
			"999999h999999h9h": true, // the longest that is accepted
			"2562048h":         false, "9223372036854775808s": false, "999999h999999h999999h": false, "1d": false, "": false,
		} {
			if got := field.accepts(t, value); got != accepted {
				t.Errorf("%s: %q is accepted: %t, want %t", name, value, got, accepted)
			}
			if _, err := time.ParseDuration(value); accepted && err != nil {
				t.Errorf("%s: %q is accepted and cannot be read: %v", name, value, err)
			}
		}
	}
}

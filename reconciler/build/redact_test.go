package build

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// I8: values of Secrets are found in the forms in which API servers and libraries quote them.
func TestRedact(t *testing.T) {
	const lines = "first line\nsecond \"line\"\n"
	cases := map[string]struct {
		values []string
		text   string
		want   string
	}{
		"as it is":          {[]string{"hunter22"}, `Invalid value: "hunter22": no`, `Invalid value: "[…]": no`},
		"in base64":         {[]string{"hunter22"}, "data " + base64.StdEncoding.EncodeToString([]byte("hunter22")), "data […]"},
		"part of a text":    {[]string{"hunter22"}, "https://u:hunter22@x", "https://u:[…]@x"},
		"longest first":     {[]string{"hunter", "hunter22"}, "hunter22 hunter", "[…] […]"},
		"short in quotes":   {[]string{"42"}, `port 4242 is "42"`, `port 4242 is […]`},
		"empty":             {[]string{""}, `is ""`, `is ""`},
		"lines":             {[]string{lines}, "value: " + lines, "value: […]"},
		"lines escaped":     {[]string{lines}, `value: "first line\nsecond \"line\"\n"`, `value: "[…]"`},
		"lines as one":      {[]string{lines}, `value: first line second "line"`, `value: […]`},
		"one of lines":      {[]string{lines}, `line 2: second "line": what`, `line 2: […]: what`},
		"cut off":           {[]string{"hunter22"}, "value: hunter…; value: hunte …", "value: …; value: …"},
		"cut off later":     {[]string{"aaab-secret"}, "value: aaaab-se…", "value: a…"},
		"cut off by chance": {[]string{"hunter22"}, "the hun…", "the hun…"},
		"nothing":           {nil, "text …", "text …"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var secrets Secrets
			for _, value := range tc.values {
				secrets.Add(value)
			}
			if diff := cmp.Diff(tc.want, secrets.Redact(tc.text)); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("hunter22", "before ", " after")
	f.Add("a\nb\"c", "…", "…")
	f.Fuzz(func(t *testing.T, value, before, after string) {
		if len(value) < minSecret {
			return
		}
		var secrets Secrets
		secrets.Add(value)
		got := secrets.Redact(before + value + after)
		if strings.Contains(got, value) && !strings.Contains(redacted, value) {
			t.Errorf("%q is in %q", value, got)
		}
	})
}

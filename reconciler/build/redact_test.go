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
		"cut off within":    {[]string{"hunt", "hunter22"}, "value: hunter…", "value: …"},
		"cut off as quoted": {[]string{"a\"b\"c-secret"}, `value: a\"b\"…`, "value: …"},
		"overlapping":       {[]string{"aaaabbbb", "bbbbcccc"}, "aaaabbbbcccc", "[…]"},
		"like a marker":     {[]string{"[…"}, "[…] […", "[…] […]"},
		"cut off by chance": {[]string{"hunter22"}, "the hun…", "the hun…"},
		"nothing":           {nil, "text …", "text …"},
		// API servers quote fields with json.Marshal, others with an encoder that leaves < alone, and texts with %q.
		"in a structure":        {[]string{"p<ss&w0rd"}, `Invalid value: {"value":"p\u003css\u0026w0rd"}`, `Invalid value: {"value":"[…]"}`},
		"as JSON without HTML":  {[]string{"p<ss\u2028w0rd"}, `{"value":"p<ss\u2028w0rd"}`, `{"value":"[…]"}`},
		"control as JSON":       {[]string{"p\x01ss\bw0rd"}, `{"value":"p\u0001ss\bw0rd"}`, `{"value":"[…]"}`},
		"from a file":           {[]string{"tail\"quoted\\w0rd\n"}, `value: "tail\"quoted\\w0rd"`, `value: "[…]"`},
		"from a file, in JSON":  {[]string{"a<b\"c\n"}, `{"value":"a\u003cb\"c"}`, `{"value":"[…]"}`},
		"from a file, short":    {[]string{"p<\n"}, `{"value":"p\u003c"}`, `{"value":[…]}`},
		"from a file, base64":   {[]string{"hunter22\n"}, base64.StdEncoding.EncodeToString([]byte("hunter22")), "[…]"},
		"one of lines, escaped": {[]string{"first\nsec<nd \"line\"\n"}, `x sec\u003cnd \"line\" x`, "x […] x"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var secrets Secrets
			for _, value := range tc.values {
				secrets.Add(value)
			}
			if diff := cmp.Diff(tc.want, secrets.Redactor().Redact(tc.text)); diff != "" {
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
		got := secrets.Redactor().Redact(before + value + after)
		if strings.Contains(got, value) && !strings.Contains(redacted, value) {
			t.Errorf("%q is in %q", value, got)
		}
	})
}

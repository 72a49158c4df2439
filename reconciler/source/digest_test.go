package source

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// T-80: which digests are accepted, and that none is ever guessed.
func TestParseDigest(t *testing.T) {
	hex64, hex96, hex128 := strings.Repeat("ab", 32), strings.Repeat("cd", 48), strings.Repeat("ef", 64)
	cases := map[string]struct {
		text, want, error string
	}{
		"sha256":            {text: "sha256:" + hex64, want: "sha256:" + hex64},
		"sha384":            {text: "sha384:" + hex96, want: "sha384:" + hex96},
		"sha512":            {text: "sha512:" + hex128, want: "sha512:" + hex128},
		"blake3":            {text: "blake3:" + hex64, want: "blake3:" + hex64},
		"upper-case hex":    {text: "sha256:" + strings.ToUpper(hex64), want: "sha256:" + hex64},
		"upper-case name":   {text: "SHA256:" + hex64, want: "sha256:" + hex64},
		"empty":             {text: "", error: "the artifact has no digest"},
		"bare hex":          {text: hex64, error: `digest "` + hex64 + `" names no algorithm`},
		"sha1":              {text: "sha1:" + hex64[:40], error: `digest algorithm "sha1" is none of sha256, sha384, sha512, blake3`},
		"no algorithm":      {text: ":" + hex64, error: `digest algorithm "" is none of sha256, sha384, sha512, blake3`},
		"empty hex":         {text: "sha256:", error: `digest "sha256:" is not 64 hex digits`},
		"too short":         {text: "sha512:" + hex64, error: `digest "sha512:` + hex64 + `" is not 128 hex digits`},
		"not hex":           {text: "sha256:" + strings.Repeat("xy", 32), error: `digest "sha256:` + strings.Repeat("xy", 32) + `" is not 64 hex digits`},
		"leads out of path": {text: "sha256:../../" + hex64[:58], error: `digest "sha256:../../` + hex64[:58] + `" is not 64 hex digits`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			sum, err := parseDigest(c.text)
			got, text := "", ""
			if err != nil {
				text = err.Error()
			} else {
				got = sum.String()
			}
			if diff := cmp.Diff([]string{c.want, c.error}, []string{got, text}); diff != "" {
				t.Errorf("parseDigest (-want +got):\n%s", diff)
			}
		})
	}
}

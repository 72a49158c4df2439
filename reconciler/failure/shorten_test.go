package failure

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestShorten(t *testing.T) {
	for name, tc := range map[string]struct {
		text  string
		limit int
		want  string
	}{
		"short enough":     {"schön", 6, "schön"},
		"cut":              {"abcdefgh", 6, "abc…"},
		"never in a rune":  {"äöüäöü", 8, "äö…"},
		"what is not seen": {"a\nlevel=ERROR\r\x1b[2Jb\u202ec", 40, "a level=ERROR  [2Jb c"},
		"nothing fits":     {"世界世界", 5, "…"},
		"no text at all":   {"\xb5\xb5\xb5\xb5\xb5", 4, "…"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Shorten(tc.text, tc.limit)); diff != "" {
				t.Errorf("shortened (-want +got):\n%s", diff)
			}
		})
	}
}

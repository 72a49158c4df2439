package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each span has a row in tracing.md, and each attribute is in it; what is there is in the code.
func TestSpans(t *testing.T) {
	spans := regexp.MustCompile(`(?:Start|[sS]tep|begin)\(ctx, "([a-z]+)"|Path\w* += "(/[a-z/]+)"`)
	attributes := regexp.MustCompile(`(?:slog\.\w+\(|prefix\+)"([a-z]+)"|"stageset\.([a-z]+)"`)
	names, keys := map[string]bool{}, map[string]bool{}
	for _, file := range slices.Concat(goFiles(t, "../admission/webhook"), goFiles(t, "../reconciler")) {
		for _, match := range spans.FindAllStringSubmatch(read(t, file), -1) {
			names[match[1]+match[2]] = true
		}
		for _, match := range attributes.FindAllStringSubmatch(read(t, file), -1) {
			keys["stageset."+match[1]+match[2]] = true
		}
	}
	_, table, _ := strings.Cut(read(t, "tracing.md"), "\n## Spans\n")
	documented, described := map[string]bool{}, map[string]bool{}
	for _, match := range regexp.MustCompile("(?m)^\\| `([a-z/]+)` \\|").FindAllStringSubmatch(table, -1) {
		documented[match[1]] = true
	}
	for _, match := range regexp.MustCompile("`(stageset\\.[a-z]+)`").FindAllStringSubmatch(table, -1) {
		described[match[1]] = true
	}
	if diff := cmp.Diff(names, documented); diff != "" {
		t.Errorf("spans (-code +docs/tracing.md):\n%s", diff)
	}
	if diff := cmp.Diff(keys, described); diff != "" {
		t.Errorf("attributes (-code +docs/tracing.md):\n%s", diff)
	}
}

package failure

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is listed may be a part of something longer, which stays as it is.
func TestAndMore(t *testing.T) {
	all := []string{"a", "b", "c", "d"}
	if diff := cmp.Diff([]string{"a", "b", "and 2 more"}, AndMore(all[:2], 2)); diff != "" {
		t.Errorf("two of four (-want +got):\n%s", diff)
	}
	for left := range 3 {
		if diff := cmp.Diff([]string{"a", "b", "c", "d"}, AndMore(all, -left)); diff != "" {
			t.Errorf("all, %d less than there may be (-want +got):\n%s", left, diff)
		}
	}
}

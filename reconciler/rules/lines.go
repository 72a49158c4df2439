package rules

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// maxViolations is how many violations a message lists before it counts.
const maxViolations = 20

// lines are what policies say, each once. As many are kept as a message lists, of the others only a number each: a release may
// have thousands of objects, and each line some kilobytes.
type lines struct {
	kept []string
	seen map[uint64]bool
}

var seed = maphash.MakeSeed()

func (l *lines) add(line string) {
	hash := maphash.String(seed, line)
	if l.seen[hash] {
		return
	}
	if l.seen == nil {
		l.seen = map[uint64]bool{}
	}
	l.seen[hash] = true
	if len(l.kept) < maxViolations {
		l.kept = append(l.kept, line)
	}
}

// String lists those that are kept, and counts the others.
func (l lines) String() string {
	shown := slices.Clone(l.kept)
	if more := len(l.seen) - len(l.kept); more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(shown, "; ")
}

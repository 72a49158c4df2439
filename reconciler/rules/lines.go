package rules

import (
	"hash/maphash"
	"strings"

	"github.com/stageset/stageset/reconciler/failure"
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
	return strings.Join(failure.AndMore(l.kept, len(l.seen)-len(l.kept)), "; ")
}

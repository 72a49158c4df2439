package build

import (
	"fmt"
	"time"
)

// Limits of a build. What they bound is work and memory that one tenant can cause.
const (
	// MaxInput bounds the bytes of all files that the build of a stage reads; a file that a kustomization reaches twice
	// counts twice.
	MaxInput = 64 << 20
	// MaxObjects bounds the objects of a stage, anchors resolved, at 32 bytes for each value in addition to its text.
	MaxObjects = 64 << 20
	// MaxDocument bounds one YAML document or JSON file, in bytes. The API server takes requests up to 3 MiB; only a List
	// can be larger, and can be split.
	MaxDocument = 4 << 20
	// maxSeparators bounds the newlines, colons, commas and opening brackets of one document, and so the nodes that its
	// parser makes before any of them can be counted.
	maxSeparators = 1 << 20
	// maxNesting bounds how deep values, Lists and kustomizations are nested.
	maxNesting = 1000
	// maxBaseDepth bounds how many kustomizations lead from the first to the last.
	maxBaseDepth = 64
	// maxBaseVisits bounds how often a build enters a kustomization, a base that is reached twice counted twice.
	maxBaseVisits = 5000
	// kustomizeTimeout bounds one kustomize build.
	kustomizeTimeout = time.Minute
)

// nodeCost is what a value counts in addition to its text.
const nodeCost = 32

// budget is what a build may still use of something.
type budget struct {
	left  int64
	limit int64
	of    string
}

func inputBudget() *budget { return &budget{left: MaxInput, limit: MaxInput, of: "manifests"} }

func objectBudget() *budget { return &budget{left: MaxObjects, limit: MaxObjects, of: "objects"} }

// spend takes bytes away, or says that the limit is reached.
func (b *budget) spend(bytes int) error {
	if b.left -= int64(bytes); b.left < 0 {
		return fmt.Errorf("the stage has more than %d MiB of %s; split it", b.limit>>20, b.of)
	}
	return nil
}

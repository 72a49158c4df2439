package inventory

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Age orders StageSets.
type Age struct {
	// Created is when the API server made the StageSet.
	Created time.Time
	// UID decides between two of the same second.
	UID types.UID
}

// Older is true when a StageSet of this age was before one of the other.
func (a Age) Older(other Age) bool {
	if !a.Created.Equal(other.Created) {
		return a.Created.Before(other.Created)
	}
	return a.UID < other.UID
}

// Claim says that an inventory of a StageSet has an entry for an object.
type Claim struct {
	Namespace, Name string
	Age
}

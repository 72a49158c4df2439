package v1

// Reasons of events that are no condition; docs/reasons.md lists them.
const (
	// EventDriftCorrected: what somebody else did to applied objects was undone; the note names fields and field managers.
	EventDriftCorrected = "DriftCorrected"
	// EventDriftDetected: somebody else changed or deleted applied objects, and what was applied is not at hand to correct it.
	EventDriftDetected = "DriftDetected"
	// EventDriftLoop: drift came back in the same way whenever it was corrected; from now on it is corrected ever more seldom.
	// The note names the fields and field managers.
	EventDriftLoop = "DriftLoop"
	// EventRecreating: objects were deleted to be made anew, because a field differs that cannot be changed, and
	// conflictPolicy allows it.
	EventRecreating = "Recreating"
	// EventOrphaned: something stays in the cluster although it should have been deleted; the note says what, and why.
	EventOrphaned = "Orphaned"
	// EventInventoryLost: what was applied is not recorded any more; the note says how to find it.
	EventInventoryLost = "InventoryLost"
)

package v1

// Reasons of events that are no condition; docs/reasons.md lists them.
const (
	// EventDriftCorrected: what somebody else did to applied objects was undone; the note names fields and field managers.
	EventDriftCorrected = "DriftCorrected"
)

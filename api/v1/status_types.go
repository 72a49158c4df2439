package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StagePhase says where in a run a stage is.
// +kubebuilder:validation:Enum=Pending;Applying;Verifying;Ready;Failed;Held
type StagePhase string

const (
	// StagePending: the run has not reached the stage.
	StagePending StagePhase = "Pending"
	// StageApplying: some of the stage's objects of this run are written, others not yet.
	StageApplying StagePhase = "Applying"
	// StageVerifying: all objects are written, not all of them are healthy.
	StageVerifying StagePhase = "Verifying"
	// StageReady: all objects are written and healthy.
	StageReady StagePhase = "Ready"
	// StageFailed: the stage cannot go on; its message says why.
	StageFailed StagePhase = "Failed"
	// StageHeld: the stage did not become healthy within its timeout; it is still looked at and may finish by itself.
	StageHeld StagePhase = "Held"
)

// StageSetStatus is what the reconciler last saw. Only the reconciler writes it.
type StageSetStatus struct {
	// observedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready, Reconciling and Stalled, as kstatus defines them, and Preflight.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// currentStage is the stage that the current run is at; empty when all are Ready.
	// +optional
	CurrentStage string `json:"currentStage,omitempty"`

	// revision is the short form of what runs: the revisions of the last run that succeeded, separated by commas.
	// +optional
	Revision string `json:"revision,omitempty"`

	// lastHandledReconcileAt is the last value of the annotation reconcile.fluxcd.io/requestedAt that was acted on.
	// +optional
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`

	// lastHandledReconcileStage is the last value of the annotation stages.metio.wtf/reconcile-stage that was acted on.
	// +optional
	LastHandledReconcileStage string `json:"lastHandledReconcileStage,omitempty"`

	// lastAttemptedRevisions maps namespace/name of each source to the revision of the last run.
	// +optional
	LastAttemptedRevisions map[string]string `json:"lastAttemptedRevisions,omitempty"`

	// lastAppliedRevisions maps namespace/name of each source to the revision of the last run that succeeded.
	// +optional
	LastAppliedRevisions map[string]string `json:"lastAppliedRevisions,omitempty"`

	// stages has an entry for each stage of the current run.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Stages []StageStatus `json:"stages,omitempty"`

	// history has the last five runs that ended, the newest first: one for each change of revisions.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	History []HistoryEntry `json:"history,omitempty"`
}

// MaxHistory is how many runs StageSetStatus.History has.
const MaxHistory = 5

// RunResult says how a run ended.
// +kubebuilder:validation:Enum=Succeeded;Failed
type RunResult string

const (
	// RunSucceeded: everything was applied, healthy and pruned.
	RunSucceeded RunResult = "Succeeded"
	// RunFailed: it could not go on without somebody's change. It becomes Succeeded if the same revisions do after all.
	RunFailed RunResult = "Failed"
)

// HistoryEntry is a run that ended.
type HistoryEntry struct {
	// revisions maps namespace/name of each source to its revision.
	// +required
	Revisions map[string]string `json:"revisions"`
	// finishedAt is when the run ended.
	// +required
	FinishedAt metav1.Time `json:"finishedAt"`
	// result is how it ended.
	// +required
	Result RunResult `json:"result"`
}

// StageStatus is where one stage is in the current run.
type StageStatus struct {
	// name of the stage.
	// +required
	Name string `json:"name"`
	// phase of the stage.
	// +required
	Phase StagePhase `json:"phase"`
	// revision of the source that this run applies.
	// +optional
	Revision string `json:"revision,omitempty"`
	// digest of the artifact that this run applies.
	// +optional
	Digest string `json:"digest,omitempty"`
	// startedAt is when the first object of this run was written.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// readyAt is when the stage was first seen healthy in this run.
	// +optional
	ReadyAt *metav1.Time `json:"readyAt,omitempty"`
	// objects is how many objects the stage renders.
	// +optional
	Objects int32 `json:"objects,omitempty"`
	// serviceAccountName is the account that the stage is applied as.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// message says what the stage waits for, or why it failed.
	// +optional
	Message string `json:"message,omitempty"`
}

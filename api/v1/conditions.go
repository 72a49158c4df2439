package v1

// Condition types, as kstatus defines them. Ready is derived from the outcome of a pass, never set by hand.
const (
	// ConditionReady: the release is applied and healthy.
	ConditionReady = "Ready"
	// ConditionReconciling: work goes on.
	ConditionReconciling = "Reconciling"
	// ConditionStalled: nothing will change without somebody's change.
	ConditionStalled = "Stalled"
	// ConditionPreflight: the accounts have the permissions that the release needs; False names what they lack. It is there
	// once that was asked.
	ConditionPreflight = "Preflight"
)

// Reasons of the conditions; docs/reasons.md has a row for each, with meaning, cause and fix.
const (
	// ReasonSucceeded: every stage is applied and healthy, and what left the release is pruned.
	ReasonSucceeded = "Succeeded"
	// ReasonProgressing: a run is on its way; the message names the stage and what it waits for.
	ReasonProgressing = "Progressing"
	// ReasonSuspended: spec.suspend is set.
	ReasonSuspended = "Suspended"
	// ReasonInvalidSpec: the StageSet asks for something that cannot be done.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonPolicyViolation: a policy denies the stored StageSet.
	ReasonPolicyViolation = "PolicyViolation"
	// ReasonServiceAccountRequired: a stage has no account to be applied as.
	ReasonServiceAccountRequired = "ServiceAccountRequired"
	// ReasonServiceAccountNotFound: the account does not exist.
	ReasonServiceAccountNotFound = "ServiceAccountNotFound"
	// ReasonAccessDenied: the account may not read something that the StageSet refers to.
	ReasonAccessDenied = "AccessDenied"
	// ReasonDependencyNotReady: a StageSet in dependsOn is missing or not Ready at its current generation.
	ReasonDependencyNotReady = "DependencyNotReady"
	// ReasonDependencyCycle: the StageSet depends on itself, over however many others; the message names the way.
	ReasonDependencyCycle = "DependencyCycle"
	// ReasonSourceNotFound: a source does not exist.
	ReasonSourceNotFound = "SourceNotFound"
	// ReasonSourceNotReady: a source has no artifact.
	ReasonSourceNotReady = "SourceNotReady"
	// ReasonArtifactFailed: the artifact could not be downloaded, or is not what the source says it is.
	ReasonArtifactFailed = "ArtifactFailed"
	// ReasonBuildFailed: the artifact does not render; the message names file and line.
	ReasonBuildFailed = "BuildFailed"
	// ReasonDuplicateObject: two stages render the same object.
	ReasonDuplicateObject = "DuplicateObject"
	// ReasonPermissionsMissing: the account lacks permissions; the message names each with its object.
	ReasonPermissionsMissing = "PermissionsMissing"
	// ReasonKubeConfigInvalid: what spec.kubeConfig names is not there, cannot be used, or is refused.
	ReasonKubeConfigInvalid = "KubeConfigInvalid"
	// ReasonTargetUnreachable: the API server of the target does not answer.
	ReasonTargetUnreachable = "TargetUnreachable"
	// ReasonApplyFailed: the API server refused an object.
	ReasonApplyFailed = "ApplyFailed"
	// ReasonConflict: another StageSet owns an object.
	ReasonConflict = "Conflict"
	// ReasonHealthCheckFailed: an object says that it failed.
	ReasonHealthCheckFailed = "HealthCheckFailed"
	// ReasonHealthCheckTimedOut: objects are not healthy within the stage's timeout; they are still looked at.
	ReasonHealthCheckTimedOut = "HealthCheckTimedOut"
	// ReasonPruneRefused: a stage would delete so much of what it applied that it looks like a mistake.
	ReasonPruneRefused = "PruneRefused"
	// ReasonPruneFailed: an object that left the release could not be deleted.
	ReasonPruneFailed = "PruneFailed"
	// ReasonTerminating: the StageSet is being deleted; the message says what is still there.
	ReasonTerminating = "Terminating"
)

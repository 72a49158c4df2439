package v1

import (
	"crypto/sha256"
	"encoding/hex"
)

// Labels, annotations and finalizers. docs/api.md lists them with their meaning.
const (
	// AnnotationDependsOn on a rendered object names others, of its stage or an earlier one, that have to be healthy before it
	// is applied. The syntax is that of kpt and cli-utils: "group/namespaces/namespace/kind/name", or "group/kind/name" for
	// what is in no namespace, separated by commas; the core group is empty.
	AnnotationDependsOn = "config.kubernetes.io/depends-on"
	// AnnotationRequestedAt on a StageSet asks for a pass now, as for every Flux object; any new value does.
	AnnotationRequestedAt = "reconcile.fluxcd.io/requestedAt"
	// AnnotationPrune with the value "disabled" on an object, live or rendered, keeps it from ever being deleted.
	AnnotationPrune = "stages.metio.wtf/prune"
	// PruneDisabled is the value of AnnotationPrune that has an effect.
	PruneDisabled = "disabled"
	// AnnotationReconcileStage on a StageSet asks for one stage to be applied again, whether it has changed or not. Its value
	// is "<stage>@<token>"; any new token does.
	AnnotationReconcileStage = "stages.metio.wtf/reconcile-stage"
	// AnnotationAllowMassPrune on a StageSet allows a release that deletes most of what a stage has applied. Its value is the
	// revision of the stage's artifact; several are separated by commas.
	AnnotationAllowMassPrune = "stages.metio.wtf/allow-mass-prune"
	// AnnotationSubstitute with the value "disabled" keeps postBuild from replacing anything in a rendered object; on a
	// kustomization, in all that it renders. Flux reads the same annotation.
	AnnotationSubstitute = "kustomize.toolkit.fluxcd.io/substitute"
	// SubstituteDisabled is the value of AnnotationSubstitute that has an effect.
	SubstituteDisabled = "disabled"
	// AnnotationForce with the value "enabled" on a rendered object lets it be made anew when a field differs that cannot be
	// changed, unless a rule of the stage's conflictPolicy says something else.
	AnnotationForce = "stages.metio.wtf/force"
	// ForceEnabled is the value of AnnotationForce that has an effect.
	ForceEnabled = "enabled"
	// AnnotationDefaultedBy on a StageSet records which policy set which field (field=policy, comma separated).
	AnnotationDefaultedBy = "stages.metio.wtf/defaulted-by"
	// AnnotationDefaultServiceAccount on a Namespace names the default account of its StageSets. It counts only where the
	// policy config trusts the keys of namespaces.
	AnnotationDefaultServiceAccount = "stages.metio.wtf/default-service-account"

	// LabelTenancy on a Namespace says whose its StageSets are. It counts only where the policy config trusts the keys of
	// namespaces.
	LabelTenancy = "stages.metio.wtf/tenancy"
	// TenancyPlatform is the value of LabelTenancy that has an effect: they are no tenant's.
	TenancyPlatform = "platform"

	// LabelName on an applied object is the name of the StageSet that owns it (hashed when over 63 characters; the
	// annotation of the same key has it in full).
	LabelName = "stages.metio.wtf/name"
	// LabelNamespace on an applied object is the namespace of the StageSet that owns it.
	LabelNamespace = "stages.metio.wtf/namespace"
	// LabelStage on an applied object is the stage that owns it.
	LabelStage = "stages.metio.wtf/stage"

	// Finalizer on a StageSet keeps it until what it applied is deleted. It is added only before the first write to a
	// target.
	Finalizer = "stages.metio.wtf/finalizer"
	// InventoryFinalizer on a StageInventory keeps it until teardown no longer needs it.
	InventoryFinalizer = "stages.metio.wtf/inventory"
)

// FieldManagerPrefix begins the field manager of every StageSet.
const FieldManagerPrefix = "stageset-reconciler/"

// FieldManager is the server-side apply field manager of the StageSet namespace/name: one for all its stages and runs, so
// that the API server itself names the other StageSet in a conflict.
func FieldManager(namespace, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return FieldManagerPrefix + hex.EncodeToString(sum[:])[:12]
}

// LabelValue is value as it appears in an owner label: as it is up to 63 characters, else its first 50 characters, a dash
// and 12 hex digits of its SHA-256.
func LabelValue(value string) string {
	if len(value) <= 63 {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return value[:50] + "-" + hex.EncodeToString(sum[:])[:12]
}

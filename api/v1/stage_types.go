package v1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Stage is one step of a release: a source, how it is rendered, whom it is applied as, and when it counts as healthy.
type Stage struct {
	// name identifies the stage within its StageSet.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	Name string `json:"name"`

	// sourceRef names the Flux source that the stage renders. It is read as the stage's account.
	// +required
	SourceRef SourceReference `json:"sourceRef"`

	// path is the directory in the source's artifact to render. It must exist.
	// +optional
	// +kubebuilder:default="./"
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// serviceAccountName overrides spec.serviceAccountName for everything that this stage does.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// targetNamespace sets the namespace of every namespaced object of the stage. Without it, an object that names no
	// namespace goes to the StageSet's own.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	TargetNamespace string `json:"targetNamespace,omitempty"`

	// prune deletes objects that left the stage, once the last stage is healthy, and when the StageSet is deleted.
	// +optional
	// +kubebuilder:default=true
	Prune *bool `json:"prune,omitempty"`

	// timeout overrides spec.timeout.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]{1,6}(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:MaxLength=16
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// onTimeout overrides spec.onTimeout.
	// +optional
	OnTimeout OnTimeout `json:"onTimeout,omitempty"`

	// force is short for the conflictPolicy whose default is Recreate.
	// +optional
	Force bool `json:"force,omitempty"`

	// conflictPolicy says what happens when the API server refuses to change an object, and would accept it as a new one:
	// a field differs that cannot be changed.
	// +optional
	ConflictPolicy *ConflictPolicy `json:"conflictPolicy,omitempty"`

	// patches are applied to the rendered objects, in order, as kustomize does.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Patches []Patch `json:"patches,omitempty"`

	// components are directories of the artifact, relative to path, with Components of kustomize that the directory is built
	// with.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Components []string `json:"components,omitempty"`

	// images replaces image names, tags and digests, as kustomize does.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Images []Image `json:"images,omitempty"`

	// commonMetadata is added to the metadata of every rendered object.
	// +optional
	CommonMetadata *CommonMetadata `json:"commonMetadata,omitempty"`

	// postBuild replaces references such as ${name} in the rendered objects, after everything else. Without it they stay
	// as they are.
	// +optional
	PostBuild *PostBuild `json:"postBuild,omitempty"`

	// readyChecks adds to what must be healthy before the next stage starts.
	// +optional
	ReadyChecks *ReadyChecks `json:"readyChecks,omitempty"`
}

// Prunes says whether the stage deletes what leaves it, as it does unless it says otherwise.
func (s Stage) Prunes() bool { return s.Prune == nil || *s.Prune }

// SourceKind is the kind of a Flux source, or of a producer of an ExternalArtifact.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern="^[A-Z][A-Za-z0-9]*$"
type SourceKind string

const (
	// SourceKindExternalArtifact is an artifact that something else than source-controller produced. It is the default.
	SourceKindExternalArtifact SourceKind = "ExternalArtifact"
	// SourceKindGitRepository is a Git repository.
	SourceKindGitRepository SourceKind = "GitRepository"
	// SourceKindOCIRepository is an OCI repository.
	SourceKindOCIRepository SourceKind = "OCIRepository"
	// SourceKindBucket is an object storage bucket.
	SourceKindBucket SourceKind = "Bucket"
)

// SourceGroup is the API group of Flux's sources.
const SourceGroup = "source.toolkit.fluxcd.io"

// SourceReference names a Flux source, or the producer of an ExternalArtifact: an object of any other kind, which is never
// read itself. Its artifact is that of the one ExternalArtifact in its namespace whose spec.sourceRef points back at it.
type SourceReference struct {
	// apiVersion of the source. Empty means source.toolkit.fluxcd.io/v1; a producer needs it. Of a producer only the group
	// counts.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern="^(([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9]+((alpha|beta)[0-9]+)?)?$"
	APIVersion string `json:"apiVersion,omitempty"`
	// kind of the source: ExternalArtifact, GitRepository, OCIRepository or Bucket; any other is that of a producer.
	// +optional
	// +kubebuilder:default=ExternalArtifact
	Kind SourceKind `json:"kind,omitempty"`
	// name of the source.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// namespace of the source. Empty means the StageSet's own.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// Group is the API group of what is named: that of Flux's sources if apiVersion is empty.
func (r SourceReference) Group() string {
	if r.APIVersion == "" {
		return SourceGroup
	}
	group, _, found := strings.Cut(r.APIVersion, "/")
	if !found {
		return ""
	}
	return group
}

// IsProducer says whether a producer of an ExternalArtifact is named, and no source of Flux.
func (r SourceReference) IsProducer() bool {
	switch r.Kind {
	case "", SourceKindExternalArtifact, SourceKindGitRepository, SourceKindOCIRepository, SourceKindBucket:
		return r.Group() != SourceGroup
	}
	return true
}

// In is the reference of a StageSet in namespace, with what it leaves out: an ExternalArtifact, in the namespace of the StageSet.
func (r SourceReference) In(namespace string) SourceReference {
	if r.Kind == "" {
		r.Kind = SourceKindExternalArtifact
	}
	if r.Namespace == "" {
		r.Namespace = namespace
	}
	return r
}

// Patch is a kustomize patch: a strategic merge patch or a JSON 6902 patch, as YAML or JSON text.
type Patch struct {
	// patch is the text of the patch.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	Patch string `json:"patch"`
	// target selects the objects that are patched. A strategic merge patch that names its object needs none.
	// +optional
	Target *PatchTarget `json:"target,omitempty"`
}

// PatchTarget selects objects, as kustomize's selector does: empty fields match everything, name and namespace are
// anchored regular expressions.
type PatchTarget struct {
	// +optional
	Group string `json:"group,omitempty"`
	// +optional
	Version string `json:"version,omitempty"`
	// +optional
	Kind string `json:"kind,omitempty"`
	// +optional
	Name string `json:"name,omitempty"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// labelSelector selects by labels, in the syntax of kubectl's --selector.
	// +optional
	LabelSelector string `json:"labelSelector,omitempty"`
	// annotationSelector selects by annotations, in the syntax of kubectl's --selector.
	// +optional
	AnnotationSelector string `json:"annotationSelector,omitempty"`
}

// Image replaces parts of image references whose name matches.
type Image struct {
	// name of the image as the manifests have it, without tag.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// newName replaces the name.
	// +optional
	NewName string `json:"newName,omitempty"`
	// newTag replaces the tag.
	// +optional
	NewTag string `json:"newTag,omitempty"`
	// digest replaces tag and digest; newTag is then ignored.
	// +optional
	Digest string `json:"digest,omitempty"`
}

// CommonMetadata is added to every rendered object; it wins over what the manifest says.
type CommonMetadata struct {
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// PostBuild says what the variables in the rendered objects stand for. A reference to a variable that has no value and no
// default is an error.
type PostBuild struct {
	// substitute has values by name; they win over those of substituteFrom.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	Substitute map[string]string `json:"substitute,omitempty"`

	// substituteFrom lists ConfigMaps and Secrets in the StageSet's namespace whose entries are values; of equal names the
	// last one wins. They are read as spec.serviceAccountName.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	SubstituteFrom []SubstituteReference `json:"substituteFrom,omitempty"`
}

// SubstituteKind is the kind of an object that has values of variables.
// +kubebuilder:validation:Enum=ConfigMap;Secret
type SubstituteKind string

const (
	// SubstituteConfigMap is a ConfigMap; the entries under data count.
	SubstituteConfigMap SubstituteKind = "ConfigMap"
	// SubstituteSecret is a Secret; no message tells its values.
	SubstituteSecret SubstituteKind = "Secret"
)

// SubstituteReference names an object that has values of variables.
type SubstituteReference struct {
	// +required
	Kind SubstituteKind `json:"kind"`
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// optional says that the object need not exist.
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// ReadyChecks says what must be healthy.
type ReadyChecks struct {
	// timeout is how long the stage may take to become healthy; it overrides the stage's timeout.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]{1,6}(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:MaxLength=16
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// disableWait lets the next stage start without waiting for the health of the applied objects; checks are still waited
	// for.
	// +optional
	DisableWait bool `json:"disableWait,omitempty"`

	// checks lists objects that must be healthy in addition to all applied objects. They are read as the stage's account.
	// +optional
	// +listType=map
	// +listMapKey=apiVersion
	// +listMapKey=kind
	// +listMapKey=name
	// +listMapKey=namespace
	// +kubebuilder:validation:MaxItems=64
	Checks []ReadyCheck `json:"checks,omitempty"`

	// exprs say in CEL what the health of objects of a kind is, of those that the stage applies and those in checks. They
	// replace what is known of the kind.
	// +optional
	// +listType=map
	// +listMapKey=apiVersion
	// +listMapKey=kind
	// +kubebuilder:validation:MaxItems=32
	Exprs []ReadyExpressions `json:"exprs,omitempty"`
}

// ReadyExpressions is the health of a kind, as CEL that evaluates to bool. The variable object is the object; metadata, spec
// and status are its fields. inProgress is asked first, then failed, then current; an object of which none of them holds is
// in progress, as is one whose status.observedGeneration is not its generation.
type ReadyExpressions struct {
	// apiVersion and kind say of what objects; the version does not matter.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	APIVersion string `json:"apiVersion"`
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// current holds when the object is healthy.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=10240
	Current string `json:"current"`
	// inProgress holds while the object may become healthy by itself.
	// +optional
	// +kubebuilder:validation:MaxLength=10240
	InProgress string `json:"inProgress,omitempty"`
	// failed holds when the object will not become healthy: the stage fails at once.
	// +optional
	// +kubebuilder:validation:MaxLength=10240
	Failed string `json:"failed,omitempty"`
}

// ReadyCheck names an object whose health is waited for.
type ReadyCheck struct {
	// +required
	// +kubebuilder:validation:MinLength=1
	APIVersion string `json:"apiVersion"`
	// +required
	// +kubebuilder:validation:MinLength=1
	Kind string `json:"kind"`
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// namespace of the object. Empty means the stage's targetNamespace, or else the StageSet's own; it is ignored for
	// cluster-scoped kinds.
	// +optional
	// +default=""
	// +kubebuilder:default=""
	Namespace string `json:"namespace,omitempty"`
}

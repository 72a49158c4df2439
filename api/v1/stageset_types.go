package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StageSet describes a release as an ordered list of stages. Each stage takes a Flux source, renders it, applies it as the
// tenant's ServiceAccount, and waits until all of it is healthy before the next stage starts.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=sset,categories=gitops
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Stage",type=string,JSONPath=`.status.currentStage`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Account",type=string,priority=1,JSONPath=`.spec.serviceAccountName`
type StageSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the release as its owner wants it.
	// +required
	Spec StageSetSpec `json:"spec"`
	// status is what the reconciler last saw.
	// +optional
	Status StageSetStatus `json:"status,omitzero"`
}

// StageSetList is a list of StageSets.
// +kubebuilder:object:root=true
type StageSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StageSet `json:"items"`
}

// DeletionPolicy says what deleting a StageSet does with the objects it applied.
// +kubebuilder:validation:Enum=Delete;Orphan
type DeletionPolicy string

const (
	// DeletionPolicyDelete deletes what was applied, in reverse stage order. It is the default.
	DeletionPolicyDelete DeletionPolicy = "Delete"
	// DeletionPolicyOrphan leaves what was applied where it is.
	DeletionPolicyOrphan DeletionPolicy = "Orphan"
)

// OnTimeout says what happens to a stage that is not healthy within its timeout.
// +kubebuilder:validation:Enum=Hold
type OnTimeout string

const (
	// OnTimeoutHold says so, gives later stages no write, looks on, and goes on by itself once the stage is healthy. It is
	// the default, and the only value that this version has.
	OnTimeoutHold OnTimeout = "Hold"
)

// StageSetSpec is the desired release.
type StageSetSpec struct {
	// interval is how often the applied state is checked again. A new source revision is picked up at once, whatever the
	// interval. When unset, the reconciler's --default-interval applies.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]{1,6}(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:MaxLength=16
	Interval *metav1.Duration `json:"interval,omitempty"`

	// retryInterval is the upper bound of the pause after a failed pass. When unset, it is the smaller of interval and 2m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]{1,6}(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:MaxLength=16
	RetryInterval *metav1.Duration `json:"retryInterval,omitempty"`

	// timeout is how long a stage may take to become healthy, unless the stage says otherwise.
	// +optional
	// +kubebuilder:default="15m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]{1,6}(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:MaxLength=16
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// onTimeout says what happens when a stage is not healthy within its timeout, although nothing of it failed.
	// +optional
	// +kubebuilder:default=Hold
	OnTimeout OnTimeout `json:"onTimeout,omitempty"`

	// suspend stops all applies. What runs, runs on; deleting a suspended StageSet still deletes what it applied.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// deletionPolicy says what deleting this StageSet does with what it applied. It may be set to Orphan while the StageSet
	// is being deleted.
	// +optional
	// +kubebuilder:default=Delete
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// dependsOn lists the StageSets that must be Ready, at their current generation, before this one is applied. They are
	// read as serviceAccountName.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +listMapKey=namespace
	// +kubebuilder:validation:MaxItems=64
	DependsOn []DependencyReference `json:"dependsOn,omitempty"`

	// serviceAccountName is the account, in the StageSet's own namespace, that every operation of this StageSet is done as.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// kubeConfig names the credentials of another cluster to apply to. Sources, dependencies and variables are still read in
	// the cluster of the StageSet. It is read as serviceAccountName; on the other cluster the stages' accounts are impersonated
	// by their user names, system:serviceaccount:<namespace>:<name>. Where the reconciler's own identity is allowed, a Secret
	// needs no account: what no account is named for, the user of the kubeconfig does.
	// +optional
	KubeConfig *KubeConfigReference `json:"kubeConfig,omitempty"`

	// stages is the ordered list of stages. A stage starts when every object of the one before is healthy.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Stages []Stage `json:"stages"`
}

// DependencyReference names another StageSet.
type DependencyReference struct {
	// name of the StageSet.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// namespace of the StageSet. Empty means the namespace of the StageSet that depends.
	// +optional
	// +default=""
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// KubeConfigReference names where the credentials of another cluster are. Exactly one of its fields is set; the built-in
// policy kubeconfig-one-reference says so.
type KubeConfigReference struct {
	// secretRef names a Secret that holds a kubeconfig.
	// +optional
	SecretRef *SecretKeyReference `json:"secretRef,omitempty"`
	// configMapRef names a ConfigMap that says how the cluster is reached with a token of a ServiceAccount, in the keys
	// provider, cluster, address, ca.crt, audiences and serviceAccountName.
	// +optional
	ConfigMapRef *LocalObjectReference `json:"configMapRef,omitempty"`
}

// SecretKeyReference names a key of a Secret in the StageSet's namespace.
type SecretKeyReference struct {
	// name of the Secret.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// key of the Secret. When empty, value and then value.yaml are tried.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// LocalObjectReference names an object in the StageSet's namespace.
type LocalObjectReference struct {
	// name of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// StageInventory is what one stage has applied, with UIDs. It is written before the objects are (write-ahead), in spec and
// not in status, so that backups keep it. Only the reconciler writes it; tenants may read it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=sinv
// +kubebuilder:printcolumn:name="StageSet",type=string,JSONPath=`.spec.stageSet`
// +kubebuilder:printcolumn:name="Stage",type=string,JSONPath=`.spec.stage`
// +kubebuilder:printcolumn:name="Account",type=string,JSONPath=`.spec.target.serviceAccountName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type StageInventory struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec StageInventorySpec `json:"spec"`
}

// StageInventoryList is a list of StageInventories.
// +kubebuilder:object:root=true
type StageInventoryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StageInventory `json:"items"`
}

// StageInventorySpec is a shard of the inventory of one stage.
type StageInventorySpec struct {
	// stageSet is the name of the StageSet, in the same namespace.
	// +required
	StageSet string `json:"stageSet"`
	// stage is the name of the stage.
	// +required
	Stage string `json:"stage"`
	// position is the stage's index in spec.stages when it was last applied; teardown goes from the highest to the lowest.
	// +required
	// +kubebuilder:validation:Minimum=0
	Position int32 `json:"position"`
	// shard numbers the inventories of one stage; each holds up to 2,000 entries.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Shard int32 `json:"shard,omitempty"`
	// target is where, and as whom, the entries were applied.
	// +required
	Target InventoryTarget `json:"target"`
	// prune is the stage's prune when it was last applied: false keeps the entries when they leave the stage.
	// +optional
	// +kubebuilder:default=true
	Prune *bool `json:"prune,omitempty"`
	// entries are the applied objects.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2000
	Entries []InventoryEntry `json:"entries,omitempty"`
}

// ClusterLocal is the value of InventoryTarget.Cluster for the cluster that the StageSet itself is in.
const ClusterLocal = "local"

// InventoryTarget is a cluster and an identity.
type InventoryTarget struct {
	// cluster is "local", or the SHA-256 of the URL of another cluster's API server, in hexadecimal.
	// +required
	Cluster string `json:"cluster"`
	// kubeConfig is the reference that led to another cluster.
	// +optional
	KubeConfig InventoryKubeConfig `json:"kubeConfig,omitzero"`
	// serviceAccountName is the account, in the StageSet's namespace.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// The kinds of an InventoryKubeConfig: of what spec.kubeConfig.secretRef named, and of what configMapRef did.
const (
	KubeConfigSecret    = "Secret"
	KubeConfigConfigMap = "ConfigMap"
)

// InventoryKubeConfig names an object, in the StageSet's namespace, that says how another cluster is reached.
type InventoryKubeConfig struct {
	// kind of the object: Secret or ConfigMap.
	// +required
	Kind string `json:"kind"`
	// name of the object.
	// +required
	Name string `json:"name"`
	// key of the Secret; empty means value or else value.yaml.
	// +optional
	Key string `json:"key,omitempty"`
}

// InventoryEntry is one applied object.
type InventoryEntry struct {
	// +optional
	Group string `json:"group,omitempty"`
	// +required
	Version string `json:"version"`
	// +required
	Kind string `json:"kind"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +required
	Name string `json:"name"`
	// uid of the object; empty between the write-ahead and the answer to the apply.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// resourceVersion that our last apply left.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// generation that our last apply left; 0 for kinds that have none.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// renderedHash is a keyed hash (HMAC-SHA-256) of what was applied, so that it tells nothing about a Secret.
	// +optional
	RenderedHash string `json:"renderedHash,omitempty"`
	// keep is true when what was applied had the annotation stages.metio.wtf/prune: disabled. The object is then never
	// deleted, also if somebody has taken the annotation off it since.
	// +optional
	Keep bool `json:"keep,omitempty"`
	// left is true when the object has left the release, and has not been seen gone yet.
	// +optional
	Left bool `json:"left,omitempty"`
}

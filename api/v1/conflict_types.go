package v1

// ConflictAction is what happens to an object that would have to be made anew.
// +kubebuilder:validation:Enum=Fail;Recreate;KeepExisting
type ConflictAction string

const (
	// ConflictFail ends the release before its first write. It is the default.
	ConflictFail ConflictAction = "Fail"
	// ConflictRecreate deletes the object, and makes it anew when it and its dependents are gone.
	ConflictRecreate ConflictAction = "Recreate"
	// ConflictKeepExisting leaves the live object as it is.
	ConflictKeepExisting ConflictAction = "KeepExisting"
)

// ConflictPolicy says which objects may be made anew.
type ConflictPolicy struct {
	// default is for objects that no rule matches. Empty means Recreate if force is set, and Fail if not.
	// +optional
	Default ConflictAction `json:"default,omitempty"`
	// rules are looked at in order; the first that matches an object decides.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Rules []ConflictRule `json:"rules,omitempty"`
}

// ConflictRule is what happens to some objects.
type ConflictRule struct {
	// target selects the objects.
	// +required
	Target ConflictTarget `json:"target"`
	// action is what happens to them.
	// +required
	Action ConflictAction `json:"action"`
	// allowDataLoss lets the rule recreate PersistentVolumes and PersistentVolumeClaims.
	// +optional
	AllowDataLoss bool `json:"allowDataLoss,omitempty"`
}

// ConflictTarget selects objects as they are applied; an empty field matches everything.
type ConflictTarget struct {
	// +optional
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

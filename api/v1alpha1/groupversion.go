package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every type in this package.
var GroupVersion = schema.GroupVersion{Group: "stages.metio.wtf", Version: "v1alpha1"}

// KindStageSetPolicy is the kind of StageSetPolicy.
const KindStageSetPolicy = "StageSetPolicy"

var (
	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme registers the types of this package with a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &StageSetPolicy{}, &StageSetPolicyList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

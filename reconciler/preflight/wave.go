package preflight

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	rbacGroup       = "rbac.authorization.k8s.io"
	crdGroup        = "apiextensions.k8s.io"
	admissionGroup  = "admissionregistration.k8s.io"
	schedulingGroup = "scheduling.k8s.io"
)

// Waves of a stage, from first to last: what others need before they can be created comes first, what can keep others
// from being created comes last.
const (
	waveScopes   = iota // namespaces and CRDs
	waveAccounts        // accounts, roles, classes
	waveBindings        // bindings of roles
	waveConfig          // what workloads read
	waveWorkload        // everything else
	waveGates           // admission configurations and API services, which can refuse everything else
)

var waves = map[schema.GroupKind]int{
	{Kind: "Namespace"}: waveScopes,
	{Group: crdGroup, Kind: "CustomResourceDefinition"}: waveScopes,

	{Kind: "ServiceAccount"}:                                   waveAccounts,
	{Group: rbacGroup, Kind: "Role"}:                           waveAccounts,
	{Group: rbacGroup, Kind: "ClusterRole"}:                    waveAccounts,
	{Group: schedulingGroup, Kind: "PriorityClass"}:            waveAccounts,
	{Group: "storage.k8s.io", Kind: "StorageClass"}:            waveAccounts,
	{Group: "node.k8s.io", Kind: "RuntimeClass"}:               waveAccounts,
	{Group: "networking.k8s.io", Kind: "IngressClass"}:         waveAccounts,
	{Group: "gateway.networking.k8s.io", Kind: "GatewayClass"}: waveAccounts,

	{Group: rbacGroup, Kind: "RoleBinding"}:        waveBindings,
	{Group: rbacGroup, Kind: "ClusterRoleBinding"}: waveBindings,

	{Kind: "ConfigMap"}:                                 waveConfig,
	{Kind: "Secret"}:                                    waveConfig,
	{Kind: "PersistentVolume"}:                          waveConfig,
	{Kind: "PersistentVolumeClaim"}:                     waveConfig,
	{Kind: "ResourceQuota"}:                             waveConfig,
	{Kind: "LimitRange"}:                                waveConfig,
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}: waveConfig,

	{Group: admissionGroup, Kind: "ValidatingWebhookConfiguration"}:   waveGates,
	{Group: admissionGroup, Kind: "MutatingWebhookConfiguration"}:     waveGates,
	{Group: admissionGroup, Kind: "ValidatingAdmissionPolicyBinding"}: waveGates,
	{Group: admissionGroup, Kind: "MutatingAdmissionPolicyBinding"}:   waveGates,
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:             waveGates,
}

// WaveOf is the place of a kind within a stage; deletion goes from the highest to the lowest.
func WaveOf(kind schema.GroupKind) int {
	if wave, special := waves[kind]; special {
		return wave
	}
	return waveWorkload
}

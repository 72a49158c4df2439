package waves

import "k8s.io/apimachinery/pkg/runtime/schema"

const (
	rbacGroup       = "rbac.authorization.k8s.io"
	crdGroup        = "apiextensions.k8s.io"
	admissionGroup  = "admissionregistration.k8s.io"
	schedulingGroup = "scheduling.k8s.io"
)

// Waves of a stage, from first to last: what others need before they can be created comes first, what can keep others
// from being created comes last.
const (
	scopes   = iota // namespaces and CRDs
	accounts        // accounts, roles, classes
	bindings        // bindings of roles
	config          // what workloads read
	workload        // everything else
	guards          // admission configurations and API services, which can refuse everything else
)

var kinds = map[schema.GroupKind]int{
	{Kind: "Namespace"}: scopes,
	{Group: crdGroup, Kind: "CustomResourceDefinition"}: scopes,

	{Kind: "ServiceAccount"}:                                   accounts,
	{Group: rbacGroup, Kind: "Role"}:                           accounts,
	{Group: rbacGroup, Kind: "ClusterRole"}:                    accounts,
	{Group: schedulingGroup, Kind: "PriorityClass"}:            accounts,
	{Group: "storage.k8s.io", Kind: "StorageClass"}:            accounts,
	{Group: "node.k8s.io", Kind: "RuntimeClass"}:               accounts,
	{Group: "networking.k8s.io", Kind: "IngressClass"}:         accounts,
	{Group: "gateway.networking.k8s.io", Kind: "GatewayClass"}: accounts,

	{Group: rbacGroup, Kind: "RoleBinding"}:        bindings,
	{Group: rbacGroup, Kind: "ClusterRoleBinding"}: bindings,

	{Kind: "ConfigMap"}:                                 config,
	{Kind: "Secret"}:                                    config,
	{Kind: "PersistentVolume"}:                          config,
	{Kind: "PersistentVolumeClaim"}:                     config,
	{Kind: "ResourceQuota"}:                             config,
	{Kind: "LimitRange"}:                                config,
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}: config,

	{Group: admissionGroup, Kind: "ValidatingWebhookConfiguration"}:   guards,
	{Group: admissionGroup, Kind: "MutatingWebhookConfiguration"}:     guards,
	{Group: admissionGroup, Kind: "ValidatingAdmissionPolicyBinding"}: guards,
	{Group: admissionGroup, Kind: "MutatingAdmissionPolicyBinding"}:   guards,
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:             guards,
}

// OfKind is the place of a kind within a stage; deletion goes from the highest to the lowest.
func OfKind(kind schema.GroupKind) int {
	if wave, special := kinds[kind]; special {
		return wave
	}
	return workload
}

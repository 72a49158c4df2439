{{- /* The policy config, one for both programs, so that they cannot disagree. */ -}}
{{- define "stageset.policyConfig" -}}
{{- $kinds := list -}}
{{- range .Values.policies.paramResources -}}
{{- $kinds = append $kinds (pick . "apiVersion" "kind") -}}
{{- end -}}
{{- $config := dict
  "rules" .Values.policies.rules
  "paramResources" $kinds
  "reservedNamespaces" .Values.policies.reservedNamespaces
  "trustedRequesters" .Values.policies.trustedRequesters
  "defaultServiceAccount" .Values.tenancy.defaultServiceAccount
  "trustNamespaceKeys" .Values.tenancy.trustNamespaceLabel
  "noCrossNamespaceRefs" .Values.controller.noCrossNamespaceRefs
-}}
{{- if .Values.rbac.clusterAdmin -}}
{{- $_ := set $config "platformNamespaces" (list "*") -}}
{{- $_ := set $config "allowControllerIdentity" (list "*") -}}
{{- else -}}
{{- $_ := set $config "platformNamespaces" (.Values.tenancy.platformNamespaces | default (list .Release.Namespace)) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

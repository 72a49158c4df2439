{{- /* A binding of a role (kind, role) to the accounts of components: in a namespace, or in the cluster. */ -}}
{{- define "stageset.bind" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ empty .namespace | ternary "ClusterRoleBinding" "RoleBinding" }}
metadata:
  name: {{ .role }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{ include "stageset.labels" .root | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ .kind }}, name: {{ .role }}}
subjects:
{{- range .components }}
- {kind: ServiceAccount, name: {{ $.root.Release.Name }}-{{ . }}, namespace: {{ $.root.Release.Namespace }}}
{{- end }}
{{- end -}}

{{- /* Where a role of the programs is bound, as a list of namespaces; an empty one is the whole cluster. */ -}}
{{- define "stageset.places" -}}
{{- $watched := .root.Values.controller.watchNamespaces -}}
{{- if eq .role.kind "Role" -}}
{{- list .role.metadata.namespace | toJson -}}
{{- else if hasSuffix "-tokens" .role.metadata.name -}}
{{- .root.Values.rbac.tokenRequest.namespaces | default $watched | default (list "") | toJson -}}
{{- else if hasSuffix "-watched" .role.metadata.name -}}
{{- $watched | default (list "") | toJson -}}
{{- else -}}
[""]
{{- end -}}
{{- end -}}

{{- /* Takes from a role what stageset-admission does not do with a certificate that somebody else keeps. */ -}}
{{- define "stageset.certificateInFiles" -}}
{{- $rules := list -}}
{{- range $rule := .rules -}}
{{- if has "mutatingwebhookconfigurations" $rule.resources -}}
{{- $_ := set $rule "verbs" (without $rule.verbs "patch") -}}
{{- end -}}
{{- if not (has "secrets" $rule.resources) -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- end -}}
{{- $_ := set . "rules" $rules -}}
{{- end -}}

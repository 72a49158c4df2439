{{- /* The labels of every object. */ -}}
{{- define "stageset.labels" -}}
{{ include "stageset.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "stageset.selector" -}}
app.kubernetes.io/name: stageset
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* The objects in a file of the chart, as a list, with the names and labels of this release. The files are written for a
release called stageset in namespace stageset-system, and are tested as they are. */ -}}
{{- define "stageset.file" -}}
{{- $parts := "admission|edit|inventories|namespaces|reconciler|tokens|view" -}}
{{- $text := .root.Files.Get (printf "files/%s" .file) | replace "stageset-system" "@namespace@" -}}
{{- $text = regexReplaceAll (printf "\\bstageset-(%s)\\b" $parts) $text (printf "%s-${1}" .root.Release.Name) -}}
{{- $text = $text | replace "@namespace@" .root.Release.Namespace -}}
{{- $labels := include "stageset.labels" .root | fromYaml -}}
{{- range splitList "\n---\n" (print "\n" $text) -}}
{{- with fromYaml . }}
- {{ merge . (dict "metadata" (dict "labels" $labels)) | toYaml | nindent 2 | trim }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A selector of namespaces by their names, which nobody can forge. */ -}}
{{- define "stageset.namespaces" -}}
matchExpressions:
- {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}
{{- end -}}

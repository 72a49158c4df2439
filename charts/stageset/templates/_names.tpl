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

{{- /* A file of the chart with the names of this release. The files are written for a release called stageset in namespace
stageset-system, and are tested as they are. */ -}}
{{- define "stageset.text" -}}
{{- $parts := "admission|edit|inventories|namespaces|reconciler|tokens|view" -}}
{{- $text := .root.Files.Get (printf "files/%s" .file) | replace "stageset-system" "@namespace@" -}}
{{- $text = regexReplaceAll (printf "\\bstageset-(%s)\\b" $parts) $text (printf "%s-${1}" .root.Release.Name) -}}
{{- $text | replace "@namespace@" .root.Release.Namespace -}}
{{- end -}}

{{- /* The objects in a file of the chart, as a list, with the names and labels of this release. */ -}}
{{- define "stageset.file" -}}
{{- $labels := include "stageset.labels" .root | fromYaml -}}
{{- range splitList "\n---\n" (include "stageset.text" . | print "\n") -}}
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

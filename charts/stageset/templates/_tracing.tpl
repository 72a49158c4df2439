{{- /* The environment variables of a traced program, as a list. */ -}}
{{- define "stageset.tracingEnv" -}}
{{- with .Values.tracing -}}
{{- if .endpoint }}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ .endpoint | quote }}}
- {name: OTEL_TRACES_SAMPLER, value: parentbased_traceidratio}
- {name: OTEL_TRACES_SAMPLER_ARG, value: {{ .samplingRatio | quote }}}
{{- if .caConfigMap }}
- {name: OTEL_EXPORTER_OTLP_CERTIFICATE, value: /etc/stageset/tracing/ca.crt}
{{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{- /* The rule of a NetworkPolicy that leads to the collector: a Service's namespace is in its name; its Pods may listen on
another port. */ -}}
{{- define "stageset.tracingEgress" -}}
{{- $host := splitList ":" (urlParse .).host -}}
{{- $labels := splitList "." (first $host) -}}
{{- if and (gt (len $labels) 2) (eq (index $labels 2) "svc") -}}
- to:
  - namespaceSelector: {{ include "stageset.namespaces" (list (index $labels 1)) | nindent 6 }}
{{- else -}}
- ports: [{port: {{ last $host }}}]
{{- end -}}
{{- end -}}

{{- /* The arguments for a map of flags. */ -}}
{{- define "stageset.flags" -}}
{{- range $flag, $value := . }}
{{- if kindIs "slice" $value }}{{ $value = join "," $value }}{{ end }}
{{- if kindIs "float64" $value }}{{ $value = int64 $value }}{{ end }}
- {{ printf "--%s=%v" $flag $value | quote }}
{{- end }}
{{- end -}}

{{- /* The port of an address such as :8080; empty where nothing is served, which is 0. */ -}}
{{- define "stageset.port" -}}
{{- . | toString | trimPrefix ":" | regexFind "^[1-9][0-9]*$" -}}
{{- end -}}

{{- /* The ports of probes and, where they are served, of metrics. */ -}}
{{- define "stageset.ports" -}}
{{- $taken := dict -}}
{{- range $flag := list "webhook-port" "health-probe-bind-address" "metrics-bind-address" "debug-bind-address" -}}
{{- with regexFind "[1-9][0-9]*$" (index $ $flag | default "" | toString) -}}
{{- with get $taken . -}}
{{- fail (printf "%s and %s have the same port" . $flag) -}}
{{- end -}}
{{- $_ := set $taken . $flag -}}
{{- end -}}
{{- end }}
- {name: health, containerPort: {{ include "stageset.port" (index . "health-probe-bind-address") }}}
{{- with include "stageset.port" (index . "metrics-bind-address") }}
- {name: metrics, containerPort: {{ . }}}
{{- end }}
{{- end -}}

{{- /* The metadata of a Pod's template. */ -}}
{{- define "stageset.podMetadata" -}}
labels:
  {{- merge (include "stageset.selector" .root | fromYaml) (dict "app.kubernetes.io/component" .component) .values.podLabels
    | toYaml | nindent 2 }}
annotations:
  # What is read at the start alone: a change starts Pods anew.
  checksum/policy-config: {{ include "stageset.policyConfig" .root | sha256sum }}
  {{- with .values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* What the Pods of both programs have in common: the restricted Pod Security Standard, and where they run. */ -}}
{{- define "stageset.podSpec" -}}
serviceAccountName: {{ .root.Release.Name }}-{{ .component }}
automountServiceAccountToken: true
enableServiceLinks: false
terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{ toYaml . | nindent 0 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- topologyKey: {{ . }}
  maxSkew: 1
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "stageset.selector" $.root | nindent 6 }}
      app.kubernetes.io/component: {{ $.component }}
  matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end -}}

{{- /* What the containers of both programs have in common; the arguments are last, so that flags can follow. */ -}}
{{- define "stageset.container" -}}
name: {{ .component }}
{{- with .values.image }}
image: {{ .repository }}{{ empty .digest | ternary ":" "@" }}{{ .digest | default .tag | default $.root.Chart.AppVersion }}
{{- end }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources: {{ toYaml .values.resources | nindent 2 }}
{{- with concat (include "stageset.tracingEnv" .root | fromYamlArray) .values.env }}
env: {{ toYaml . | nindent 0 }}
{{- end }}
livenessProbe:
  httpGet: {path: /healthz, port: health}
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 5
args:
- --name={{ .root.Release.Name }}
- --namespace={{ .root.Release.Namespace }}
- --policy-config=/etc/stageset/policy-config/policy-config.yaml
{{- with .root.Values.controller.watchNamespaces }}
- --watch-namespaces={{ join "," . }}
{{- end }}
{{- if .root.Values.tracing.endpoint }}
- --tracing
{{- end }}
{{- include "stageset.flags" .values.flags }}
{{- end -}}

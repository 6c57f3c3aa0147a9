{{- define "gaugeway.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "gaugeway" .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-gaugeway" (.Release.Name | trunc 44 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- /* Labels that select pods: they never change. The argument is a list of the context and the component, or "". */ -}}
{{- define "gaugeway.selector" -}}
app.kubernetes.io/name: gaugeway
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- define "gaugeway.labels" -}}
{{ include "gaugeway.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version }}
{{- end -}}

{{- define "gaugeway.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The configuration. A JSON string is a basic string of TOML. */ -}}
{{- define "gaugeway.config" -}}
{{- if .Values.config -}}
{{ .Values.config }}
{{- else -}}
[[upstreams]]
base_url = {{ toJson .Values.upstream }}

[gateway]
admin_host = "0.0.0.0"
admin_token = "${GAUGEWAY_ADMIN_TOKEN}"
drain_delay_s = 10

[monitors]
host = "0.0.0.0"
token = "${GAUGEWAY_MONITORS_TOKEN}"
{{- if eq .Values.mode "scaled" }}
gateways = [] # pods come and go: use Prometheus for the totals

[capture]
salt = "${GAUGEWAY_SALT}" # the same everywhere, so that placeholders and samples agree

[queue]
url = "${GAUGEWAY_DATABASE}"

[store]
url = "${GAUGEWAY_DATABASE}"
{{- end }}
{{- if .Values.judge.model }}

[judge]
base_url = {{ .Values.judge.baseUrl | default .Values.upstream | toJson }}
api_key = "${{ "{" }}{{ .Values.judge.apiKeyVariable }}}"
model = {{ toJson .Values.judge.model }}
{{- end }}
{{- with .Values.extraConfig }}

{{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "gaugeway.podMetadata" -}}
{{- $context := index . 0 -}}
labels:
  {{- include "gaugeway.selector" . | nindent 2 }}
{{- $annotations := $context.Values.podAnnotations }}
{{- if eq $context.Values.mode "scaled" }}
{{- /* `serve` watches its file; the planes alone do not: a changed file replaces their pods. */}}
{{- $annotations = merge (dict "checksum/config" (include "gaugeway.config" $context | sha256sum)) $annotations }}
{{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "gaugeway.podSpec" -}}
serviceAccountName: {{ include "gaugeway.fullname" . }}
automountServiceAccountToken: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  {{- if eq .Values.mode "single" }}
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- /* One pod on each node, where there are enough. */ -}}
{{- define "gaugeway.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "gaugeway.selector" . | nindent 8 }}
{{- end -}}

{{- define "gaugeway.container" -}}
image: {{ include "gaugeway.image" . | quote }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
env:
  - {name: GAUGEWAY_CONFIG, value: /etc/gaugeway/gaugeway.toml}
  - {name: GAUGEWAY_LOG_FORMAT, value: json}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
envFrom:
  - secretRef: {name: {{ .Values.existingSecret | quote }}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: config, mountPath: /etc/gaugeway, readOnly: true}
  - {name: data, mountPath: /data}
  - {name: tmp, mountPath: /tmp}
{{- end -}}

{{- define "gaugeway.trafficProbes" -}}
livenessProbe:
  httpGet: {path: /healthz, port: traffic}
  timeoutSeconds: 3
readinessProbe:
  httpGet: {path: /readyz, port: traffic}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- end -}}

{{- define "gaugeway.configVolume" -}}
- name: config
  configMap: {name: {{ include "gaugeway.fullname" . | quote }}}
{{- end -}}

{{- define "gaugeway.emptyDir" -}}
emptyDir: {sizeLimit: 1Gi}
{{- end -}}

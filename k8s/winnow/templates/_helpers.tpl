{{/* Names, labels and numbers that several manifests share. */}}

{{- define "winnow.labels" -}}
app.kubernetes.io/name: winnow
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "winnow.driverLabels" -}}
{{ include "winnow.labels" . }}
app.kubernetes.io/component: driver
{{- end }}

{{- define "winnow.executorLabels" -}}
{{ include "winnow.labels" . }}
app.kubernetes.io/component: executor
{{- end }}

{{- define "winnow.image" -}}
{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "winnow.generation" -}}
{{ .Values.generation | default .Release.Revision | int }}
{{- end }}

{{/* "winnow-7": the name of what a generation has for itself. */}}
{{- define "winnow.ofGeneration" -}}
{{ .Release.Name }}-{{ include "winnow.generation" . }}
{{- end }}

{{/*
`spark` is empty on purpose: the application, or the Deployment's spark.properties, tells Spark where and how it runs. The kubelet
would kill each driver whose page its probes do not reach.
*/}}
{{- define "winnow.winnowYaml" -}}
{{- $http := .Values.config.http | default dict -}}
{{- if ne (dig "http.enabled" (dig "enabled" true $http) .Values.config | toString) "true" -}}
{{- fail "config: remove http.enabled: the probes ask the status page whether the driver is alive" -}}
{{- end -}}
{{- $address := dig "http.address" (dig "address" "" $http) .Values.config | toString -}}
{{- if regexMatch "^(127\\.|(0*:){2,7}0*1$|localhost$)" $address -}}
{{- fail (printf "config: remove http.address: the probes do not reach the driver on %s" $address) -}}
{{- end -}}
{{- $port := dig "http.port" (dig "port" .Values.http.port $http) .Values.config -}}
{{- if ne (int $port) (int .Values.http.port) -}}
{{- fail (printf "config: remove http.port, and set the chart's http.port to %v: the probes ask the driver on %v" $port .Values.http.port) -}}
{{- end -}}
{{- if hasKey .Values.config "generation" -}}
{{- fail "config: remove generation, and set the chart's generation: an argument names it to the driver" -}}
{{- end -}}
{{ merge (dict "http" (merge (dict "port" .Values.http.port) $http) "spark" dict) (omit .Values.config "http.port") | toYaml }}
{{- end }}

{{/* A pod with another checksum is another pod: a changed configuration restarts the driver. */}}
{{- define "winnow.checksum" -}}
winnow/config-checksum: {{ include "winnow.winnowYaml" . | sha256sum }}
{{- end }}

{{/* "30", for a duration in one of the forms that the configuration takes: 500ms, 30s, 5m, 1h or seconds. */}}
{{- define "winnow.handoverSeconds" -}}
{{- $text := get .Values.config "handover.timeout" | default (dig "handover" "timeout" "0s" .Values.config) | toString -}}
{{- if not (regexMatch "^[0-9]*\\.?[0-9]+(ms|s|m|h)?$" $text) -}}
{{- fail (printf "config: the chart computes the grace period from handover.timeout: write %q like 500ms, 90s, 2m or 1h" $text) -}}
{{- end -}}
{{- if hasSuffix "ms" $text -}}{{ trimSuffix "ms" $text | float64 | mulf 0.001 | ceil | int }}
{{- else if hasSuffix "s" $text -}}{{ trimSuffix "s" $text | float64 | ceil | int }}
{{- else if hasSuffix "m" $text -}}{{ trimSuffix "m" $text | float64 | mulf 60 | ceil | int }}
{{- else if hasSuffix "h" $text -}}{{ trimSuffix "h" $text | float64 | mulf 3600 | ceil | int }}
{{- else -}}{{ $text | float64 | ceil | int }}
{{- end -}}
{{- end }}

{{- define "winnow.graceSeconds" -}}
{{ add (include "winnow.handoverSeconds" . | int) 30 }}
{{- end }}

{{/* MiB beside an executor's heap: the rest of the JVM, a Python worker for each core, and the clients of its partitions. */}}
{{- define "winnow.executorOverhead" -}}
{{- $partitions := divf .Values.partitions .Values.executor.instances | ceil | int -}}
{{- $needed := add 536 (mul 500 .Values.executor.cores) (mul 2 $partitions) | int -}}
{{- $given := .Values.executor.overhead | default $needed | int -}}
{{- if lt $given $needed -}}
{{- fail (printf "executor.overhead is %d MiB, and %d are needed: 536, 500 for each of %d cores, 2 for each of %d partitions of an executor" $given $needed (int .Values.executor.cores) $partitions) -}}
{{- end -}}
{{ $given }}
{{- end }}

{{- define "winnow.executorCpuRequest" -}}
{{ .Values.executor.cpuRequest | default .Values.executor.cores }}
{{- end }}

{{- define "winnow.executorCpuLimit" -}}
{{ .Values.executor.cpuLimit | default (add1 .Values.executor.cores) }}
{{- end }}

{{/* Whether an optional kind is wanted: asked for, or auto and known to the cluster. Arguments: context, kind, enabled. */}}
{{- define "winnow.wanted" -}}
{{- $known := .context.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" .kind) -}}
{{- if eq (toString .enabled) "auto" | ternary $known (eq (toString .enabled) "true") -}}yes{{- end -}}
{{- end }}

{{/* A rule of a NetworkPolicy, from ports and peers; no peers means anywhere. */}}
{{- define "winnow.egressTo" -}}
- ports:
  {{- range .ports }}
    - {port: {{ . }}, protocol: TCP}
  {{- end }}
  {{- with .to }}
  to: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* Where both driver and executors may go. */}}
{{- define "winnow.egress" -}}
# The brokers.
{{ include "winnow.egressTo" .Values.networkPolicy.kafka }}
# The names of brokers and pods.
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
  {{- with .Values.networkPolicy.dns.to }}
  to: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- with .Values.networkPolicy.egress }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Where Prometheus looks for pods by these annotations, it finds /metrics. */}}
{{- define "winnow.driverAnnotations" -}}
{{ include "winnow.checksum" . }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .Values.http.port | quote }}
prometheus.io/path: /metrics
{{- end }}

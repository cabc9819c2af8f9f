{{/* The pods of driver and executors, the same for both shapes. */}}

{{- define "winnow.podSecurity" -}}
runAsNonRoot: true
runAsUser: 185
runAsGroup: 185
fsGroup: 185
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "winnow.containerSecurity" -}}
runAsNonRoot: true
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
privileged: false
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* What /tmp, the working folder and the log may take. */}}
{{- define "winnow.storage" -}}
requests: {ephemeral-storage: 512Mi}
limits: {ephemeral-storage: 2Gi}
{{- end }}

{{- define "winnow.volumes" -}}
- name: secrets
  secret: {secretName: {{ .Values.secret.name }}}
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
- name: work
  emptyDir: {sizeLimit: 256Mi}
{{- end }}

{{- define "winnow.volumeMounts" -}}
- {name: secrets, mountPath: /etc/winnow/secrets, readOnly: true}
- {name: tmp, mountPath: /tmp}
- {name: work, mountPath: /opt/spark/work-dir}
{{- end }}

{{/* What driver and executors have in common. Arguments: context, values of the role. */}}
{{- define "winnow.podSpec" -}}
securityContext: {{- include "winnow.podSecurity" .context | nindent 2 }}
# Kubernetes would describe each Service of the namespace in the environment, under names that may begin with WINNOW_.
enableServiceLinks: false
{{- with .context.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- with .role.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .role.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
volumes: {{- include "winnow.volumes" .context | nindent 2 }}
{{- end }}

{{/*
The driver's pod. The container's name is the one that Spark looks for.
*/}}
{{- define "winnow.driverPodSpec" -}}
serviceAccountName: {{ .Release.Name }}
# The one pod that talks to the API server.
automountServiceAccountToken: true
# The successor takes over meanwhile.
terminationGracePeriodSeconds: {{ include "winnow.graceSeconds" . }}
# A node that is lost is left soon: a successor takes over by fencing, whatever the old pod still does there.
tolerations:
{{- range list "not-ready" "unreachable" }}
  - {key: node.kubernetes.io/{{ . }}, operator: Exists, effect: NoExecute, tolerationSeconds: {{ $.Values.driver.lostNodeSeconds }}}
{{- end }}
{{- with .Values.driver.tolerations }}
{{ toYaml . | indent 2 }}
{{- end }}
{{ include "winnow.podSpec" (dict "context" . "role" .Values.driver) }}
  - name: config
    configMap: {name: {{ include "winnow.ofGeneration" . }}}
{{- end }}

{{- define "winnow.driverVolumeMounts" -}}
- {name: config, mountPath: /etc/winnow, readOnly: true}
{{ include "winnow.volumeMounts" . }}
{{- end }}

{{/*
A driver that hangs is ended after three minutes: more than twice what docker/main.py waits for Kafka, while nobody answers.
*/}}
{{- define "winnow.driverContainer" -}}
securityContext: {{- include "winnow.containerSecurity" . | nindent 2 }}
ports:
  - {name: http, containerPort: {{ .Values.http.port }}, protocol: TCP}
livenessProbe:
  httpGet: {path: /healthz, port: http}
  initialDelaySeconds: 60
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 18
env:
  # docker/main.py removes the finished executors of earlier drivers by these labels.
  - name: EXECUTOR_LABELS
    value: app.kubernetes.io/instance={{ .Release.Name }},app.kubernetes.io/component=executor
{{- end }}

{{/* An executor's pod, as the template from which Spark makes it. */}}
{{- define "winnow.executorPod" -}}
metadata:
  labels: {{- include "winnow.executorLabels" . | nindent 4 }}
spec:
  serviceAccountName: {{ .Release.Name }}-executor
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 30
  {{- with .Values.executor.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.executor.spreadOver }}
  topologySpreadConstraints:
  {{- range . }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "winnow.executorLabels" $ | nindent 10 }}
  {{- end }}
  {{- end }}
  {{- include "winnow.podSpec" (dict "context" . "role" .Values.executor) | nindent 2 }}
  containers:
    - name: spark-kubernetes-executor
      resources: {{- include "winnow.storage" . | nindent 8 }}
      securityContext: {{- include "winnow.containerSecurity" . | nindent 8 }}
      volumeMounts: {{- include "winnow.volumeMounts" . | nindent 8 }}
{{- end }}

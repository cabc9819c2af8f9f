{{/* Spark's properties, the same for both shapes. */}}

{{- define "winnow.sparkConf" -}}
# A speculative attempt of a task would fence the task it doubles.
spark.speculation: "false"
# A killed task that goes on running keeps its slot; the reaper sees to its end.
spark.task.reaper.enabled: "true"
# Spark ends a driver that has lost more executors than this. Its default, 4 here, counts for the driver's whole life:
# the fifth eviction or node upgrade would end a service of months.
spark.executor.maxNumFailures: "100"
spark.executor.failuresValidityInterval: 10m
# A fresh Python worker for each round would import and load everything anew.
spark.python.worker.reuse: "true"
# Spark's own log has the shape of Winnow's. The executors' log follows by itself; the driver's JVM starts before Winnow.
spark.driver.defaultJavaOptions: >-
  -Dlog4j2.configurationFile=/opt/venv/lib/python3.11/site-packages/app/spark/log4j2.properties
  -Dwinnow.log.template=file:///opt/venv/lib/python3.11/site-packages/app/spark/log4j2.json
  {{- $group := printf "-Dwinnow.group=%v" (get .Values.config "group.id") }}
  {{- /* The JVM's options are split at blanks: as app/spark/logs.py, quote what needs it. */}}
  {{ regexMatch "[^A-Za-z0-9_@%+=:,./-]" $group | ternary (replace "'" "'\"'\"'" $group | squote) $group }}
# The data is in Kafka, equally far from every executor.
spark.locality.wait: "0s"
# Traffic between driver and executors is authenticated and encrypted; what they share is read from a mounted file.
# The other way, a generated secret, would stand in the environment of every executor's pod.
spark.authenticate: "true"
spark.authenticate.secret.file: /etc/winnow/secrets/spark.auth
spark.network.crypto.enabled: "true"
spark.network.crypto.cipher: AES/GCM/NoPadding
# Fixed, so that NetworkPolicies can name them.
spark.driver.port: "7078"
spark.driver.blockManager.port: "7079"
spark.blockManager.port: "7079"
# Spark's UI asks nobody who they are. The status page has what operators need.
spark.ui.enabled: "false"
spark.ui.showConsoleProgress: "false"
# What Spark would write into it for the executors stands in their image, and they would need one more right of the driver.
spark.kubernetes.executor.disableConfigMap: "true"
# The driver's service belongs to the driver's pod: it goes with it.
spark.kubernetes.driver.service.deleteOnTermination: "false"
# Without these two Spark asks for the right to list and delete claims, although it makes none.
spark.kubernetes.driver.ownPersistentVolumeClaim: "false"
spark.kubernetes.driver.reusePersistentVolumeClaim: "false"
# Not set on purpose: spark.executor.pyspark.memory. It limits a worker's address space, not its memory, and a
# worker with a few Kafka clients reserves 1.6 GB of addresses while it uses 180 MB.
{{- end }}

{{/*
The same for the Deployment, whose driver makes its executors without an operator, as a file. There is no service that would be
published late, so Spark need not wait until the driver is ready; it could not be, without executors. Java's reader of such a file
drops a backslash that no other one precedes.
*/}}
{{- define "winnow.sparkProperties" -}}
{{- $own := dict
  "spark.master" "k8s://https://kubernetes.default.svc"
  "spark.submit.deployMode" "client"
  "spark.app.name" "winnow"
  "spark.kubernetes.container.image" (include "winnow.image" .)
  "spark.kubernetes.container.image.pullPolicy" .Values.image.pullPolicy
  "spark.kubernetes.authenticate.executor.serviceAccountName" (printf "%s-executor" .Release.Name)
  "spark.kubernetes.executor.podTemplateFile" "/opt/spark/conf/executor.yaml"
  "spark.kubernetes.executor.podTemplateContainerName" "spark-kubernetes-executor"
  "spark.kubernetes.driver.service.publishNotReadyAddresses" "true"
  "spark.driver.memory" (printf "%dm" (int .Values.driver.heap))
  "spark.executor.instances" .Values.executor.instances
  "spark.executor.cores" .Values.executor.cores
  "spark.kubernetes.executor.request.cores" (include "winnow.executorCpuRequest" .)
  "spark.kubernetes.executor.limit.cores" (include "winnow.executorCpuLimit" .)
  "spark.executor.memory" (printf "%dm" (int .Values.executor.heap))
  "spark.executor.memoryOverhead" (printf "%sm" (include "winnow.executorOverhead" .))
-}}
{{- range $name, $value := mergeOverwrite (include "winnow.sparkConf" . | fromYaml) $own .Values.sparkConf }}
{{ $name }}={{ $value | toString | replace "\\" "\\\\" }}
{{- end }}
{{- end }}

#!/usr/bin/env bash
# The container's first program after tini: becomes a Spark driver, a Spark executor, or the command it was given.
#
#   driver --properties-file FILE --class CLASS local:///path/main.py ARG...     as Spark on Kubernetes calls it
#   executor                                                                     as Spark on Kubernetes calls it
#   COMMAND ARG...                                                               run as given; none means `winnow`
#
# Every branch ends in exec, so tini's only child is the program itself and it receives SIGTERM first.
set -euo pipefail

fail() {
  printf 'entrypoint: %s\n' "$*" >&2
  exit 2
}

# Numba uses no cache folder that it cannot write to, and the image's own is read-only: hand out a copy. A container
# that restarts in its pod finds the copy it made before.
seed_kernels() {
  [[ -d "${BAKED_KERNELS:-}" && -n "${NUMBA_CACHE_DIR:-}" && ! -e "$NUMBA_CACHE_DIR" ]] || return 0
  # No room only costs the seconds to compile them.
  cp -R "$BAKED_KERNELS" "$NUMBA_CACHE_DIR" || printf 'entrypoint: no kernels in %s\n' "$NUMBA_CACHE_DIR" >&2
}

# Kubernetes describes every Service of the namespace in the environment. One whose name begins with "winnow" (the
# operator makes such a one for the Spark UI) would be read as unknown configuration keys.
drop_service_links() {
  local host name prefix
  for host in "${!WINNOW_@}"; do
    [[ "$host" == *_SERVICE_HOST ]] || continue
    prefix=${host%_SERVICE_HOST}
    for name in "${!WINNOW_@}"; do
      case "$name" in
        "$host" | "${prefix}_SERVICE_PORT" | "${prefix}_SERVICE_PORT_"* | "${prefix}_PORT" | "${prefix}_PORT_"[0-9]*)
          unset "$name"
          ;;
      esac
    done
  done
}

# Write one word so that pyspark's shlex.split reads it back as it was.
quoted() {
  local quote="'\\''"
  printf "'%s' " "${1//\'/$quote}"
}

# Under spark-submit the JVM would be the parent, get the SIGTERM and take Python down in mid-commit. So Python is the
# parent here: it starts the JVM with the arguments left in PYSPARK_SUBMIT_ARGS, and ends it when it has stopped.
driver() {
  local submit='' program=''
  while (($#)); do
    case "$1" in
      # The class is Spark's runner for Python programs, which this function replaces.
      --class)
        (($# > 1)) || fail "$1 has no value"
        shift 2
        ;;
      --*)
        (($# > 1)) || fail "$1 has no value"
        submit+="$(quoted "$1")$(quoted "$2")"
        shift 2
        ;;
      *)
        program=$1
        shift
        break
        ;;
    esac
  done
  case "$program" in
    '') fail 'driver: no program given' ;;
    local://*) program=${program#local://} ;;
    *://*) fail "driver: $program is not in the image (write local:///path)" ;;
    local:/*) program=${program#local:} ;;
  esac

  # The properties file says cluster mode, which has been reached: from here on this is a client.
  submit+="'--deploy-mode' 'client' "
  submit+="'--conf' $(quoted "spark.driver.bindAddress=${SPARK_DRIVER_BIND_ADDRESS:?is set by Spark on Kubernetes}")"
  export PYSPARK_SUBMIT_ARGS="${submit}pyspark-shell"
  exec "${PYSPARK_DRIVER_PYTHON:-${PYSPARK_PYTHON:-python3}}" "$program" "$@"
}

# Set options to the values of SPARK_JAVA_OPT_0, _1, ... in the order of their numbers.
java_options() {
  local number
  local -a numbers=()
  for number in "${!SPARK_JAVA_OPT_@}"; do
    numbers+=("${number#SPARK_JAVA_OPT_}")
  done
  options=()
  ((${#numbers[@]})) || return 0
  while read -r number; do
    local name="SPARK_JAVA_OPT_$number"
    options+=("${!name}")
  done < <(printf '%s\n' "${numbers[@]}" | sort --numeric-sort)
}

executor() {
  local -a options
  local class_path="${SPARK_CONF_DIR:-$SPARK_HOME/conf}"
  # An empty entry would mean the working folder.
  class_path+="${HADOOP_CONF_DIR:+:$HADOOP_CONF_DIR}${SPARK_CLASSPATH:+:$SPARK_CLASSPATH}:$SPARK_HOME/jars/*"
  class_path+="${SPARK_EXTRA_CLASSPATH:+:$SPARK_EXTRA_CLASSPATH}${SPARK_DIST_CLASSPATH:+:$SPARK_DIST_CLASSPATH}"
  java_options
  # Spark reads the shared secret from a file only where the master is Kubernetes, and does not tell an executor its
  # master before they have talked: without this the executor finds no secret to talk with.
  if [[ " ${options[*]} " == *" -Dspark.authenticate.secret."* ]]; then
    options+=(-Dspark.master=k8s://driver)
  fi
  exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" \
    "${options[@]}" \
    "-Xms$SPARK_EXECUTOR_MEMORY" \
    "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "$class_path" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
}

seed_kernels
drop_service_links
case "${1:-}" in
  driver)
    shift
    driver "$@"
    ;;
  executor)
    executor
    ;;
  '')
    exec winnow
    ;;
  *)
    exec "$@"
    ;;
esac

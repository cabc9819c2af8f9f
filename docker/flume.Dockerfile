# Flume 1.11 for compose.yaml: there is no official image of it. The jars are those that the tests run, pinned by hash.
FROM debian:bookworm-slim AS base

SHELL ["/bin/bash", "-o", "errexit", "-o", "pipefail", "-c"]

# Debian keeps only the newest build of a package, and the manual's folder is missing in slim images.
# hadolint ignore=DL3008
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* /usr/share/man


FROM base AS jars

SHELL ["/bin/bash", "-o", "errexit", "-o", "pipefail", "-c"]

# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends ivy && rm -rf /var/lib/apt/lists/*

# Ivy fetches the named jars alone, whatever their poms ask for; what it has fetched must be what the lock says.
WORKDIR /flume
COPY flume.lock .
RUN awk -F '[: ]' 'BEGIN {print "<ivy-module version=\"2.0\"><info organisation=\"winnow\" module=\"flume\"/><dependencies>"} \
        {printf "<dependency org=\"%s\" name=\"%s\" rev=\"%s\" transitive=\"false\" conf=\"*->default\"/>\n", $1, $2, $3} \
        END {print "</dependencies></ivy-module>"}' flume.lock > ivy.xml \
    && java -jar /usr/share/java/ivy.jar -ivy ivy.xml -confs default -retrieve 'jars/[artifact]-[revision].[ext]' \
    && awk -F '[: ]' '{print $5 "  jars/" $2 "-" $3 ".jar"}' flume.lock | sha256sum --check --quiet


FROM base

RUN groupadd --gid 185 flume \
    && useradd --uid 185 --gid 185 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin --no-log-init flume \
    && install -d -o 185 -g 185 /var/lib/flume

COPY --from=jars /flume/jars /opt/flume
COPY flume.conf /etc/flume/

EXPOSE 44444
USER 185:185
VOLUME /var/lib/flume
HEALTHCHECK --interval=10s --timeout=5s --start-period=15s CMD ["/bin/bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/44444"]
CMD ["java", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", "/opt/flume/*", \
    "org.apache.flume.node.Application", "--no-reload-conf", "--name", "agent", "--conf-file", "/etc/flume/flume.conf"]

#!/bin/bash
# Builds a Dockerfile without a container engine, with Debian's mmdebstrap and buildah:   build.sh FOLDER CHECKOUT
#
#   FOLDER/layers         the folders of the image's layers, the last one first, as overlayfs expects them
#   FOLDER/config.json    buildah's description of the image
#
# Needs root. The caller runs it in its own mount and process namespaces, so that its mounts and programs always end
# with it, and names a Python with pip in PYTHON.
set -euo pipefail
folder=$1 checkout=$2
export PATH=/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=$folder BUILDAH_ISOLATION=chroot
BASE=debian:bookworm-slim

buildah() {
    command buildah --root "$folder/store" --runroot "$folder/state" --storage-driver overlay "$@"
}

build() {  # [OPTION...], with the Dockerfile on standard input
    buildah bud -q --layers=false --pull-never --format docker --build-arg REVISION=tested "$@" -f - "$checkout"
}

# Makes a substitute for the Dockerfile's base: Debian from the machine's own mirrors, without manuals and translations,
# as in slim images.
make_base() {
    local container base
    container=$(buildah from --pull-never scratch)
    base=$(buildah mount "$container")
    sources | mmdebstrap --mode=root --variant=minbase --dpkgopt=force-unsafe-io \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --aptopt='Acquire::Languages "none"' --aptopt=<(apt-config dump | grep -iE '^Acquire::https?::') bookworm "$base"
    point_pip_to_our_index "$base"
    buildah config --cmd bash --env PATH="/usr/local/sbin:/usr/local/bin:$PATH" "$container"
    buildah commit -q --rm "$container" "localhost/$BASE"
}

# Prints this machine's sources of bookworm. If there are none, mmdebstrap uses Debian's own.
sources() {
    apt-get indextargets --format "deb \$(REPO_URI) \$(RELEASE) \$(COMPONENT)" 'Created-By: Packages' |
        grep -E ' bookworm(-updates|-security)? main$' || true
}

# Copies the settings of this machine's pip, from files or variables, with its certificate.
point_pip_to_our_index() {
    local base=$1 settings certificate
    settings=$("$PYTHON" -m pip config list | sed -nE \
        "s/^(global|install|:env:)\.(index-url|extra-index-url|trusted-host|proxy|timeout)='(.*)'$/\2 = \3/p")
    certificate=$("$PYTHON" -m pip config list | sed -nE "s/^(global|install|:env:)\.cert='(.*)'$/\2/p" | tail -n 1)
    if [[ -n $certificate ]]; then
        cp "$certificate" "$base/etc/pip.crt"
        settings+=$'\ncert = /etc/pip.crt'
    fi
    printf '[global]\n%s\n' "$settings" > "$base/etc/pip.conf"
}

# Committing a gigabyte reads, hashes and writes it several times. So an extra last stage only keeps the folder of the
# image's own files. The image's configuration is the same without any files.
build_image() {
    local layers=$folder/store/overlay base
    build --volume "$layers:/mnt" < <(
        sed 's/^FROM base$/& AS image/' "$checkout/docker/Dockerfile"
        printf '\nFROM base\nCOPY --from=image /opt/winnow/main.py /\n'
        printf 'RUN mv "$(dirname "$(dirname /mnt/*/diff/opt/winnow)")" /mnt/image\n'
    )
    base=$(dirname "$(dirname "$layers"/*/diff/etc/debian_version)")
    printf '%s:%s' "$layers/image" "$base" > "$folder/layers"
    sed -E ':joined; /\\$/ {N; b joined}; /^(RUN|COPY) /d' "$checkout/docker/Dockerfile" | build -t localhost/winnow
    buildah inspect --type image localhost/winnow > "$folder/config.json"
}

make_base
build_image

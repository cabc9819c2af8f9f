#!/bin/bash
# Builds a Dockerfile without a container engine, by Debian's debootstrap and buildah:   build.sh FOLDER CHECKOUT
#
#   FOLDER/rootfs         the file system of the image
#   FOLDER/config.json    what buildah tells of the image
#
# Needs root. Whoever calls it gives it a mount namespace and a process namespace of its own: when it ends, however that
# happens, its mounts are gone, and so is each program that it has started.
set -euo pipefail
folder=$1 checkout=$2
export PATH=/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=$folder BUILDAH_ISOLATION=chroot
BASE=debian:bookworm-slim

buildah() {
    command buildah --root "$folder/store" --runroot "$folder/state" --storage-driver overlay "$@"
}

# What stands in for the base that the Dockerfile names: Debian as debootstrap makes it from the machine's own mirror,
# without manuals and translations, as in slim images.
make_base() {
    local base=$folder/base mirror
    mirror=$(apt-get indextargets --format "\$(REPO_URI) \$(CODENAME) \$(COMPONENT)" 'Created-By: Packages' |
        awk '$2 == "bookworm" && $3 == "main" {print $1; exit}')
    debootstrap --variant=minbase bookworm "$base" "${mirror:-http://deb.debian.org/debian}"
    rm -rf "$base"/var/cache/apt/*.bin "$base"/var/cache/apt/archives/*.deb "$base"/usr/share/{locale,man}/*
    find "$base/usr/share/doc" -type f -not -name copyright -delete
    printf 'path-exclude /usr/share/%s/*\n' doc locale man > "$base/etc/dpkg/dpkg.cfg.d/slim"
    printf 'path-include /usr/share/doc/*/copyright\n' >> "$base/etc/dpkg/dpkg.cfg.d/slim"
    if [[ -n $mirror ]]; then
        rm -f "$base/etc/apt/sources.list"
        cp -a /etc/apt/sources.list* /etc/apt/apt.conf.d "$base/etc/apt/"
    fi
    point_pip_to_our_index "$base"
}

# As this machine's pip is configured, by files or by variables; a certificate comes along.
point_pip_to_our_index() {
    local base=$1 settings certificate
    settings=$(python3 -m pip config list | sed -nE \
        "s/^(global|install|:env:)\.(index-url|extra-index-url|trusted-host|proxy|timeout)='(.*)'$/\2 = \3/p")
    certificate=$(python3 -m pip config list | sed -nE "s/^(global|install|:env:)\.cert='(.*)'$/\2/p" | tail -n 1)
    if [[ -n $certificate ]]; then
        cp "$certificate" "$base/etc/pip.crt"
        settings+=$'\ncert = /etc/pip.crt'
    fi
    printf '[global]\n%s\n' "$settings" > "$base/etc/pip.conf"
}

commit_base() {
    local container
    container=$(buildah from --pull-never scratch)
    buildah copy -q "$container" "$folder/base" /
    buildah config --cmd bash --env PATH="/usr/local/sbin:/usr/local/bin:$PATH" "$container"
    buildah commit -q --rm "$container" "localhost/$BASE"
    rm -rf "$folder/base"
}

build_image() {
    local container
    buildah bud -q --layers=false --pull-never --format docker --build-arg REVISION=tested \
        -f "$checkout/docker/Dockerfile" -t localhost/winnow "$checkout"
    container=$(buildah from --pull-never localhost/winnow)
    cp -a "$(buildah mount "$container")" "$folder/rootfs"
    buildah inspect --type image localhost/winnow > "$folder/config.json"
}

make_base
commit_base
build_image

#!/usr/bin/env bash
# The base of the build stages for a machine without a registry: Debian's smallest system, imported under the name that
# docker/Dockerfile takes. Needs root, debootstrap, and takes Debian from where apt does.
set -euo pipefail
name=debian:bookworm-slim
podman image exists "$name" && exit 0
mirror="$(apt-get indextargets --format '$(SITE) $(CODENAME)' 'Created-By: Packages' 2>/dev/null | sed -n 's/ bookworm$//p' | head -1)"
folder="$(mktemp -d)"
trap 'rm -rf --one-file-system "$folder"' EXIT
debootstrap --variant=minbase bookworm "$folder/root" ${mirror:+"$mirror"} >"$folder/log" || { tail -5 "$folder/log" >&2; exit 1; }
tar --create --directory "$folder/root" --exclude ./dev/* --exclude ./var/cache/apt/* --exclude ./var/lib/apt/lists/* . | podman import --quiet - "$name"

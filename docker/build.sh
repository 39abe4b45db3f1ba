#!/usr/bin/env bash
# Builds the container images, and for each its archive and its bill of materials in build/images:
#   trainyard-NAME.tar         for `podman load`, `docker load` and `ctr images import`; prints its size and digest
#   trainyard-NAME.spdx.json   what is in it, with versions and digests
# usage: docker/build.sh [operator] [trainer] [local] [trainer-cuda]     default: the first three; the last downloads 3 GB
#        docker/build.sh --tool                           only prints the tool that would build them; an error where there is none
#   IMAGE_TOOL     podman, buildah or docker; default: the first of them that works
#   IMAGE_BASE     what the build stages start from; default debian:bookworm-slim
#   IMAGE_OPTIONS  further options of every build: settings of this machine, docs/images.md has examples
#   IMAGE_TAGS     default: the version and latest
#   IMAGE_PREFIX   before the names, as in registry.example/team/; default: nothing
set -euo pipefail
cd "$(dirname "$0")/.."

works() { case "$1" in docker) docker info ;; *) "$1" --version ;; esac >/dev/null 2>&1; }
tool="${IMAGE_TOOL:-}"
for candidate in podman buildah docker; do
  [ -n "$tool" ] || ! works "$candidate" || tool="$candidate"
done
case "$tool" in
  podman | buildah | docker) ;;
  "") echo "images: needs podman, buildah or docker; on Debian: apt-get install podman" >&2; exit 1 ;;
  *) echo "images: IMAGE_TOOL=$tool: not one of podman, buildah, docker" >&2; exit 2 ;;
esac
works "$tool" || { echo "images: $tool does not work here" >&2; exit 1; }
[ "${1:-}" != --tool ] || { echo "$tool"; exit 0; }

version="$(sed -nE 's/^project\(trainyard VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)"
revision="$(git rev-parse HEAD)"
[ -z "$(git status --porcelain --untracked-files=normal)" ] || revision+="-modified" # untracked files would be built as well
read -ra tags <<<"${IMAGE_TAGS:-$version latest}"
read -ra options <<<"${IMAGE_OPTIONS:-}"
# The time of everything: that of the commit.
SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH
options+=(--file docker/Dockerfile --build-arg "BASE=${IMAGE_BASE:-debian:bookworm-slim}"
  --build-arg "VERSION=$version" --build-arg "REVISION=$revision" --build-arg "SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH")

# extract TARGET FOLDER: the files of a target. build TARGET NAME: an image. archive NAME FILE: of it.
# podman and buildah give the time to each layer that they make; `extract` needs none. Docker's own form of a configuration would name the
# containers that built it, and so be another one each time.
case "$tool" in
  podman | buildah)
    extract() { "$tool" build --layers --format oci "${options[@]}" --target "$1" --output "type=local,dest=$2" .; }
    build() { "$tool" build --layers --format oci --timestamp "$SOURCE_DATE_EPOCH" "${options[@]}" --target "$1" --tag "$2" .; } ;;
  docker)
    build() { docker buildx build "${options[@]}" --target "$1" --tag "$2" --output type=docker,rewrite-timestamp=true .; }
    extract() { docker buildx build "${options[@]}" --target "$1" --output "type=local,dest=$2" .; } ;;
esac
archive() {
  case "$tool" in
    podman) podman save --quiet --format docker-archive --output "$2" "$1" ;;
    buildah) buildah push --quiet "$1" "docker-archive:$2" ;;
    docker) docker save --output "$2" "$1" ;;
  esac
}

out=build/images
mkdir -p "$out"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
[ $# -gt 0 ] || set -- operator trainer local
for target in "$@"; do # all of them, before minutes go into the first
  case "$target" in operator | trainer | local | trainer-cuda) ;; *) echo "images: $target: not one of operator, trainer, local, trainer-cuda" >&2; exit 2 ;; esac
done
for target in "$@"; do
  image="trainyard-$target"
  names=("${tags[@]/#/${IMAGE_PREFIX:-}$image:}")
  extract "$target-sbom" "$scratch/sbom"
  build "$target" "${names[0]}"
  archive "${names[0]}" "$scratch/image.tar"
  docker/archive.py "$scratch/image.tar" "$out/$image.tar" "${names[@]}"
  cp "$scratch/sbom/sbom.spdx.json" "$out/$image.spdx.json"
  for name in "${names[@]:1}"; do "$tool" tag "${names[0]}" "$name"; done
  rm -r "${scratch:?}"/*
done

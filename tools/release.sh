#!/usr/bin/env bash
# Makes a release of what is committed into build/dist: programs, chart, images, bills of materials, checksums.
# usage: tools/release.sh [--check]     --check: only whether a release may be made
#   BUILD           the build to take the programs of; default build/release, which is then built
#   DIST            where to; default build/dist
#   RELEASE_IMAGES  yes, all (the one for GPUs as well), no, or auto (the default): where podman, buildah or docker works; a build
#                   that fails is an error
# docs/releasing.md says what a release is and what comes before and behind it.
set -euo pipefail
cd "$(dirname "$0")/.."
root="$(pwd -P)" # as git says it

refuse() { echo "release: $*" >&2; exit 1; }
leave_out() { echo "release: left out: $*"; }

version="$(sed -nE 's/^project\(trainyard VERSION ([0-9]+\.[0-9]+\.[0-9]+) .*/\1/p' CMakeLists.txt)"
[ -n "$version" ] || refuse "CMakeLists.txt: no project(trainyard VERSION x.y.z ...)"

check() {
  [[ "${SOURCE_DATE_EPOCH:-0}" =~ ^[0-9]{1,11}$ ]] || refuse "SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH: expected seconds since 1970"
  case "${RELEASE_IMAGES:-auto}" in yes | all | no | auto) ;; *) refuse "RELEASE_IMAGES=$RELEASE_IMAGES: not one of yes, all, no, auto" ;; esac
  local changed newest chart=charts/trainyard/Chart.yaml field said tag="v$version"
  [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$root" ] || refuse "$root is not a git checkout"
  changed="$(git status --porcelain --untracked-files=normal)"
  [ -z "$changed" ] || refuse "the tree is not clean; commit or remove:"$'\n'"$changed"
  newest="$(sed -nE 's/^## \[([0-9][^]]*)\].*/\1/p' CHANGELOG.md | head -1)"
  [ "$newest" = "$version" ] || refuse "CHANGELOG.md: the newest version is ${newest:-none}, but CMakeLists.txt says $version"
  grep -qE "^## \[$version\] - [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md || refuse "CHANGELOG.md: expected '## [$version] - YYYY-MM-DD'"
  if [ -e "$chart" ]; then
    for field in version appVersion; do
      said="$(sed -nE "s/^$field: \"?([^\" ]+)\"?.*/\1/p" "$chart")"
      [ "$said" = "$version" ] || refuse "$chart: $field is ${said:-missing}, but CMakeLists.txt says $version"
    done
  fi
  if git rev-parse -q --verify "refs/tags/$tag" >/dev/null && [ "$(git rev-parse "$tag^{commit}")" != "$(git rev-parse HEAD)" ]; then
    refuse "the tag $tag is of another commit: $version was released already"
  fi
  echo "release: $version of $(git rev-parse --short=12 HEAD) may be made"
}

# The same bytes from the same files: names in order, nobody's, at the commit's time.
pack() { # FOLDER FILE
  tar --create --directory "$(dirname "$1")" --sort=name --format=ustar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w "$(basename "$1")" |
    gzip -9 --no-name >"$2"
}

programs() {
  local name plugin program said staged
  name="trainyard-$version-linux-$(uname -m)"
  staged="$work/$name"
  cmake --install "$build" --prefix "$staged" --component programs --strip >/dev/null
  for program in trainyard trainyard-operator; do
    [ -x "$staged/bin/$program" ] || refuse "$build has no $program"
    said="$("$build/bin/$program" --version | head -2 | tr '\n' ' ')"
    [ "$said" = "$program $version commit $(git rev-parse --short=12 HEAD) " ] || refuse "$build/bin/$program is of another commit or version: $said"
  done
  plugin="$staged/lib/trainyard/libtrainyard_cuda.so"
  if [ -e "$plugin" ]; then
    grep -qaF "$(git rev-parse --short=12 HEAD)" "$plugin" || refuse "$build/lib/trainyard/libtrainyard_cuda.so is of another commit"
  else
    plugin=""
    leave_out "the plug-in for GPUs: $build was made without NVIDIA's compiler"
  fi
  cp "$work/tree/docs/releasing.md" "$staged/share/doc/trainyard/"
  pack "$staged" "$dist/$name.tar.gz"
  tools/sbom.py "$build/bin/trainyard" "$build/bin/trainyard-operator" ${plugin:+"$plugin"} >"$dist/trainyard-$version.spdx.json"
}

chart() {
  local helm
  helm="$(cmake/deps.sh --helm)"
  if [ ! -e charts/trainyard/Chart.yaml ]; then
    leave_out "the chart: there is no charts/trainyard"
  elif [ -z "$helm" ]; then
    leave_out "the chart: there is no helm; tests/cluster/build.sh helm builds it"
  else
    # helm packs with the files' times: again with the commit's.
    "$helm" package "$work/tree/charts/trainyard" --destination "$work" >/dev/null
    mkdir "$work/chart"
    tar --extract --touch --gzip --file "$work/trainyard-$version.tgz" --directory "$work/chart"
    pack "$work/chart/trainyard" "$dist/trainyard-$version.tgz"
  fi
  for manifest in crd install install-namespaced gangs; do
    [ ! -e "$work/tree/manifests/$manifest.yaml" ] || cp "$work/tree/manifests/$manifest.yaml" "$dist/trainyard-$version-$manifest.yaml"
  done
}

images() {
  if [ ! -x docker/build.sh ]; then
    leave_out "the images: there is no docker/build.sh"
  elif [ "${RELEASE_IMAGES:-auto}" = no ]; then
    leave_out "the images: RELEASE_IMAGES=no"
  elif [ "${RELEASE_IMAGES:-auto}" = auto ] && ! docker/build.sh --tool >/dev/null; then
    leave_out "the images: nothing here builds them, see above"
  else
    local name names=(operator trainer local)
    if [ "${RELEASE_IMAGES:-auto}" = all ]; then names+=(trainer-cuda); else leave_out "the image for GPUs: RELEASE_IMAGES=all builds it as well"; fi
    docker/build.sh "${names[@]}" || refuse "the images could not be built"
    for name in "${names[@]}"; do
      gzip -9 --no-name <"build/images/trainyard-$name.tar" >"$dist/trainyard-$name-$version.tar.gz"
      cp "build/images/trainyard-$name.spdx.json" "$dist/trainyard-$name-$version.spdx.json"
    done
  fi
}

check
[ "${1:-}" != --check ] || exit 0
[ $# = 0 ] || refuse "$1: not known; usage: tools/release.sh [--check]"
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
# What is committed, whatever lies or changes beside it.
mkdir "$work/tree" "$work/dist"
git archive HEAD | tar --extract --directory "$work/tree"
dist="$work/dist"
build="${BUILD:-build/release}"
if [ -z "${BUILD:-}" ]; then
  cmake --preset release >/dev/null
  cmake --build --preset release --target programs
fi
programs
chart
images
(cd "$dist" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
check >/dev/null # the programs and images are made from what lies here

# The release of before stays until this one is whole, and what is none of a release's files is left alone.
to="${DIST:-build/dist}"
mkdir -p "$to"
next="$(mktemp -d "$to/.next.XXXXXX")"
trap 'rm -rf "$work" "$next"' EXIT
cp "$dist"/* "$next"
if [ -e "$to/SHA256SUMS" ]; then
  while read -r _ name; do [[ "$name" != trainyard-* || "$name" = */* ]] || rm -f -- "$to/$name"; done <"$to/SHA256SUMS"
fi
mv "$next"/* "$to"
echo "release: $(cd "$to" && pwd)"
(cd "$dist" && ls -l --block-size=K | awk 'NR > 1 {print "  " $5, $9}')

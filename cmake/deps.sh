#!/usr/bin/env bash
# Brings what the build and the tests need: Debian packages, the pinned LibTorch wheel, and the Python readers that the tests use as
# oracles. Wheels are those of the lists in cmake/wheels, by their hashes. Idempotent: checks first, says what it installs.
set -euo pipefail

wheels="$(cd "$(dirname "$0")" && pwd)/wheels"
# As in wheels/torch.in.
torch_version=2.11.0
cache="${TRAINYARD_CACHE:-$HOME/.cache/trainyard}"
# A new LibTorch makes a new folder; of what else is in it the stamps say which versions.
venv="$cache/torch-$torch_version"
toolkit="$cache/cuda-13.0.88-nccl-2.28.9"
# What builds the programs, and what checks them.
program_packages=(build-essential cmake ninja-build ccache mold pkg-config python3 python3-venv
  libgloo-dev libcpp-httplib-dev nlohmann-json3-dev prometheus-cpp-dev libyaml-cpp-dev
  libcli11-dev libssl-dev libhdf5-dev libxxhash-dev zlib1g-dev libdeflate-dev libspng-dev)
packages=("${program_packages[@]}" git make clang-format clang-tidy libgtest-dev)
# What nodes of a cluster are made of; `make test-cluster` alone needs them.
cluster_packages=(containerd runc containernetworking-plugins nftables conntrack iproute2 util-linux openssl)
# What builds and runs container images; `make images` and `make test-images` alone need them.
image_packages=(podman buildah debootstrap uidmap fuse-overlayfs slirp4netns python3-venv)
packages+=(zsh fish groff-base) # the tests of completions and manual pages
docs_venv="$cache/docs"
image_venv="$cache/images"

# Whether the wheels of a list are those that FOLDER has.
has_wheels() { # FOLDER LIST
  cmp -s "$wheels/$2.txt" "$1/.$2"
}

# --no-deps: a list is whole, and Python's torch names 2 GB that no test needs.
install_wheels() { # VENV LIST [PIP_OPTION...]
  local pip="$1/bin/pip" list="$wheels/$2.txt"
  shift 2
  "$pip" install -qq --disable-pip-version-check --root-user-action=ignore --no-deps --require-hashes -r "$list" "$@" && return
  # pip's own words say what went wrong, and seldom why.
  echo "deps: pip could not install what $list names, see above. \"No matching distribution\" is most often the network: behind a proxy set HTTPS_PROXY," \
    "with a registry or a certificate of one's own PIP_INDEX_URL and PIP_CERT; a hash that differs is a registry that gives another file" >&2
  return 1
}

# What is not there, or of another list.
bring_wheels() { # VENV LIST WHAT
  has_wheels "$1" "$2" && return
  echo "deps: installing $3 into $1" >&2
  [ -x "$1/bin/pip" ] || /usr/bin/python3 -m venv "$1"
  install_wheels "$1" "$2"
  cp "$wheels/$2.txt" "$1/.$2"
}

# Two that install into one folder at once would both break it.
lock_cache() {
  mkdir -p "$cache"
  exec 9>"$cache/.lock"
  flock --nonblock 9 && return
  echo "deps: waiting for another one that installs into $cache" >&2
  flock --timeout 1800 9 || { echo "deps: it has not ended within 30 minutes" >&2; exit 1; }
}

bring_toolkit() {
  has_wheels "$toolkit" cuda-compiler && return
  echo "deps: installing NVIDIA's compiler and NCCL into $toolkit (about 300 MB, once)"
  rm -rf "$toolkit"
  install_wheels "$venv" cuda-compiler --target "$toolkit"
  ln -s lib "$toolkit/nvidia/cu13/lib64" # where CMake looks
  cp "$wheels/cuda-compiler.txt" "$toolkit/.cuda-compiler"
}

site_packages() { ls -d "$venv"/lib/python3*/site-packages 2>/dev/null | head -1; }

case "${1:-}" in
  --torch-prefix) site_packages; exit 0 ;;
  --python) echo "$venv/bin/python"; exit 0 ;;
  --cuda-prefix) echo "$toolkit/nvidia"; exit 0 ;;
  --stubs) echo "$cache/stubs-$torch_version"; exit 0 ;;
  --images-python) echo "$image_venv/bin/python"; exit 0 ;;
  --promtool) echo "$cache/promtool"; exit 0 ;;
  --prometheus) echo "$cache/prometheus"; exit 0 ;;
  # The one that tests/cluster/build.sh built, which the chart is tested with, or one on PATH; HELM names another. Nothing: there is none.
  --helm)
    built="$(find "$cache" -path "$cache/cluster-*/bin/helm" 2>/dev/null | sort | tail -1)" || true # no cache yet
    echo "${HELM:-${built:-$(command -v helm || true)}}"
    exit 0 ;;
  --cluster) packages=("${cluster_packages[@]}") ;;
  --docs)
    lock_cache
    bring_wheels "$docs_venv" docs "mkdocs (about 60 MB, once)"
    echo "$docs_venv"
    exit 0
    ;;
  --gpu)
    lock_cache
    bring_wheels "$venv" torch "LibTorch $torch_version (about 550 MB, once)"
    bring_wheels "$venv" cuda-libraries "CUDA's libraries (2 GB, once)"
    bring_wheels "$venv" cuda-python "what Python's torch wants of CUDA (500 MB, once)"
    exit 0
    ;;
  --images) packages=("${image_packages[@]}") ;;
  --program-packages | --programs | --gpu-programs) packages=("${program_packages[@]}") ;;
  "") ;;
  *)
    echo "usage: cmake/deps.sh [--gpu|--torch-prefix|--cuda-prefix|--python|--stubs|--promtool|--prometheus|--helm|--cluster|--docs|--images|--images-python|--program-packages|--programs|--gpu-programs]" >&2
    exit 2
    ;;
esac

lock_cache
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ]; then
    echo "These Debian packages are missing. Run this, then the same command again:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  echo "deps: installing Debian packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
case "${1:-}" in
  --cluster | --program-packages) exit 0 ;;
  --images)
    bring_wheels "$image_venv" images "pytest and the reader of SPDX documents"
    exit 0 ;;
  --programs | --gpu-programs)
    bring_wheels "$venv" torch "LibTorch $torch_version (about 550 MB, once)"
    if [ "$1" = --gpu-programs ]; then
      bring_toolkit
      bring_wheels "$venv" cuda-libraries "CUDA's libraries (2 GB, once)"
    fi
    exit 0 ;;
esac

bring_wheels "$venv" torch "LibTorch $torch_version (about 550 MB, once)"
bring_wheels "$venv" readers "the tests' readers (about 400 MB, once)"
bring_toolkit

# Python's torch wants the CUDA libraries at import. The tests use it on the CPU only, with
# stand-ins that export the names and abort when called.
stubs="$cache/stubs-$torch_version"
if [ ! -e "$stubs/.complete" ]; then
  echo "deps: building stand-ins for the CUDA libraries of Python's torch (tests only)"
  "$venv/bin/python" "$(dirname "$0")/cuda_stand_ins.py" "$(site_packages)" "$stubs"
  LD_LIBRARY_PATH="$stubs" "$venv/bin/python" -c 'import torch; assert torch.ones(2).sum() == 2'
  touch "$stubs/.complete"
fi

# The programs alone: Debian's package, installed, starts a server.
if [ ! -x "$cache/promtool" ] || [ ! -x "$cache/prometheus" ]; then
  echo "deps: taking promtool and prometheus out of Debian's package prometheus (tests only)"
  folder=$(mktemp -d)
  (cd "$folder" && apt-get -o APT::Sandbox::User=root download -qq prometheus && dpkg-deb --extract prometheus_*.deb .)
  for program in promtool prometheus; do # under its name only when it is whole
    mv "$folder/usr/bin/$program" "$cache/$program.new"
    mv "$cache/$program.new" "$cache/$program"
  done
  rm -r "$folder"
fi
command -v go >/dev/null || echo "deps: note: no Go found; only \`make test-cluster\` needs it (1.26 or newer)"
echo "deps: complete"

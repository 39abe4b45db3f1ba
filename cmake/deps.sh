#!/usr/bin/env bash
# Brings what the build and the tests need: Debian packages, the pinned LibTorch wheel, and the
# Python readers that the tests use as oracles. Idempotent: checks first, says what it installs.
set -euo pipefail

torch_version=2.11.0
cache="${TRAINYARD_CACHE:-$HOME/.cache/trainyard}"
# The name holds everything that was chosen, so that a new pin makes a new folder.
venv="$cache/torch-$torch_version"
packages=(build-essential cmake ninja-build ccache mold pkg-config python3 python3-venv git make clang-format clang-tidy
  libgloo-dev libcpp-httplib-dev nlohmann-json3-dev prometheus-cpp-dev libyaml-cpp-dev libgtest-dev
  libcli11-dev libssl-dev libhdf5-dev libxxhash-dev zlib1g-dev)
# What nodes of a cluster are made of; `make test-cluster` alone needs them.
cluster_packages=(containerd runc containernetworking-plugins nftables conntrack iproute2 util-linux openssl)
wheels=("torch==$torch_version" nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85)
packages+=(zsh fish groff-base) # the tests of completions and manual pages
readers=(numpy==2.4.6 h5py==3.16.0 safetensors==0.8.0 tensorboard==2.21.0 setuptools==80.9.0 matplotlib==3.10.7 pytest==9.2.0
  typing_extensions sympy networkx jinja2 filelock fsspec)
# transformers' GPT-2, which the language model is compared with, and no more than its import needs.
transformers=(transformers==5.23.0 huggingface_hub==2.4.0 tokenizers==0.23.3 regex==2026.11.15 pyyaml==6.0.3 tqdm==4.70.1
  httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 idna==3.20 truststore==0.10.5 h11==0.16.0)

site_packages() { ls -d "$venv"/lib/python3*/site-packages 2>/dev/null | head -1; }

case "${1:-}" in
  --torch-prefix) site_packages; exit 0 ;;
  --python) echo "$venv/bin/python"; exit 0 ;;
  --stubs) echo "$cache/stubs-$torch_version"; exit 0 ;;
  --promtool) echo "$cache/promtool"; exit 0 ;;
  --cluster) packages=("${cluster_packages[@]}") ;;
  "") ;;
  *) echo "usage: cmake/deps.sh [--torch-prefix|--python|--stubs|--promtool|--cluster]" >&2; exit 2 ;;
esac

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
[ "${1:-}" != --cluster ] || exit 0

stamp="$venv/.complete"
wanted="${wheels[*]} ${readers[*]} ${transformers[*]}"
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  echo "deps: installing LibTorch $torch_version and the test readers into $venv (about 620 MB, once)"
  mkdir -p "$cache"
  [ -x "$venv/bin/pip" ] || /usr/bin/python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check --no-deps "${wheels[@]}"
  "$venv/bin/pip" install -q --disable-pip-version-check --root-user-action=ignore "${readers[@]}" 2>&1 | grep -v 'torch .* requires' || true
  "$venv/bin/pip" install -q --disable-pip-version-check --root-user-action=ignore --no-deps "${transformers[@]}"
  "$venv/bin/python" -c 'import h5py, numpy, safetensors, tensorboard, matplotlib, pytest'
  echo "$wanted" >"$stamp"
fi

# Python's torch wants the CUDA libraries at import. The tests use it on the CPU only, with
# stand-ins that export the names and abort when called.
stubs="$cache/stubs-$torch_version"
if [ ! -e "$stubs/.complete" ]; then
  echo "deps: building stand-ins for the CUDA libraries of Python's torch (tests only)"
  "$venv/bin/python" "$(dirname "$0")/cuda_stand_ins.py" "$(site_packages)" "$stubs"
  LD_LIBRARY_PATH="$stubs" "$venv/bin/python" -c 'import torch; assert torch.ones(2).sum() == 2'
  touch "$stubs/.complete"
fi

# The program alone: Debian's package, installed, starts a server.
promtool="$cache/promtool"
if [ ! -x "$promtool" ]; then
  echo "deps: taking promtool out of Debian's package prometheus (tests only)"
  folder=$(mktemp -d)
  (cd "$folder" && apt-get download -qq prometheus && dpkg-deb --fsys-tarfile prometheus_*.deb | tar xO ./usr/bin/promtool >promtool)
  chmod +x "$folder/promtool"
  mv "$folder/promtool" "$promtool"
  rm -r "$folder"
fi
command -v go >/dev/null || echo "deps: note: no Go found; only \`make test-cluster\` needs it (1.26 or newer)"
echo "deps: complete"

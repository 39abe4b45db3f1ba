#!/usr/bin/env bash
# Brings what the build and the tests need: Debian packages, the pinned LibTorch wheel, and the
# Python readers that the tests use as oracles. Idempotent: checks first, says what it installs.
set -euo pipefail

torch_version=2.11.0
cache="${TRAINYARD_CACHE:-$HOME/.cache/trainyard}"
# A new LibTorch makes a new folder; of what else is in it the stamps say which versions.
venv="$cache/torch-$torch_version"
# What compiles and links libtrainyard_cuda.so: NVIDIA's compiler, headers, and NCCL, of the versions that the pinned wheel
# was built with. Nothing of it runs here; cuBLAS and its like (2 GB) are not needed for that.
cuda=(nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85 nvidia-cuda-runtime==13.0.96
  nvidia-nccl-cu13==2.28.9)
toolkit="$cache/cuda-13.0.88-nccl-2.28.9"
# What libtorch_cuda loads, of the versions that the pinned wheel names; of what Python's torch alone loads nothing.
cuda_libraries=(nvidia-cublas==13.1.0.3 nvidia-cuda-nvrtc==13.0.88 nvidia-cudnn-cu13==9.19.0.56 nvidia-cufft==12.0.0.61 nvidia-cufile==1.15.1.6
  nvidia-curand==10.4.0.35 nvidia-cusparse==12.6.3.3 nvidia-cusparselt-cu13==0.8.0 nvidia-nccl-cu13==2.28.9 nvidia-nvjitlink==13.0.88
  nvidia-nvshmem-cu13==3.4.5)
# What builds the programs, and what checks them.
program_packages=(build-essential cmake ninja-build ccache mold pkg-config python3 python3-venv
  libgloo-dev libcpp-httplib-dev nlohmann-json3-dev prometheus-cpp-dev libyaml-cpp-dev
  libcli11-dev libssl-dev libhdf5-dev libxxhash-dev zlib1g-dev libdeflate-dev libspng-dev)
packages=("${program_packages[@]}" git make clang-format clang-tidy libgtest-dev)
# What nodes of a cluster are made of; `make test-cluster` alone needs them.
cluster_packages=(containerd runc containernetworking-plugins nftables conntrack iproute2 util-linux openssl)
# What builds and runs container images; `make images` and `make test-images` alone need them.
image_packages=(podman buildah debootstrap uidmap fuse-overlayfs slirp4netns python3-venv)
image_readers=(pytest==9.2.0 spdx-tools==0.8.5)
wheels=("torch==$torch_version" nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85)
packages+=(zsh fish groff-base) # the tests of completions and manual pages
readers=(numpy==2.4.6 h5py==3.16.0 safetensors==0.8.0 tensorboard==2.21.0 setuptools==80.9.0 matplotlib==3.10.7 pytest==9.2.0
  typing_extensions sympy networkx jinja2 filelock fsspec)
# transformers' GPT-2, which the language model is compared with, and no more than its import needs.
transformers=(transformers==5.23.0 huggingface_hub==2.4.0 tokenizers==0.23.3 regex==2026.11.15 pyyaml==6.0.3 tqdm==4.70.1
  httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 idna==3.20 truststore==0.10.5 h11==0.16.0)

# What images, windows and transforms are compared with; MONAI needs PyTorch and NumPy alone for that.
imaging=(nibabel==5.4.2 monai==1.6.1)
# What survival analyses are compared with; each without what only other parts of it need.
survival=(scikit-survival==0.28.0 lifelines==0.30.3 scipy==1.17.1 pandas==2.3.3 scikit-learn==1.9.1 joblib==1.6.0
  threadpoolctl==3.8.0 cloudpickle==3.1.3 loky==3.7.0 numexpr==2.14.2 narwhals==2.29.0 autograd==1.9.1 autograd-gamma==0.5.0 formulaic==1.2.2
  interface-meta==2.0.1 wrapt==2.5.2 python-dateutil==4.0.0 pytz==2026.6 tzdata==2026.6 six==1.17.0)

# What builds the documentation's site, with everything that it depends on; `make docs` alone needs it.
docs=(mkdocs==1.6.1 mkdocs-material==9.8.1
  babel==2.18.0 backrefs==8.3 certifi==2026.10.18 charset-normalizer==3.5.2 click==8.5.1 colorama==0.4.6 ghp-import==2.1.0 idna==3.20
  jinja2==3.1.6 markdown==3.11.3 markupsafe==3.0.4 mergedeep==1.3.4 mkdocs-get-deps==0.2.2 mkdocs-material-extensions==1.3.1
  packaging==26.3 paginate==0.5.7 pathspec==1.1.1 platformdirs==4.14.7 pygments==2.21.0 pymdown-extensions==12.3
  python-dateutil==4.0.0 pyyaml==6.0.3 pyyaml_env_tag==1.1 requests==2.34.2 tzdata==2026.6 urllib3==2.8.0 watchdog==7.1.0)
docs_venv="$cache/docs-${docs[1]##*==}"
# Grafana's own models, of which charts/dashboards/build.py makes the dashboards; the number is that of the Grafana.
dashboards=("grafana-foundation-sdk==1769699379!11.6.0")
image_venv="$cache/images"

# pip's own words say what went wrong, and seldom why.
install_wheels() {
  "$venv/bin/pip" install -q --disable-pip-version-check "$@" && return
  echo "deps: pip could not install ${*: -1} and what stands before it, see above. \"No matching distribution\" is most often the network: behind a proxy set HTTPS_PROXY," \
    "with a registry or a certificate of one's own PIP_INDEX_URL and PIP_CERT" >&2
  return 1
}

# Two that install into one folder at once would both break it.
lock_cache() {
  mkdir -p "$cache"
  exec 9>"$cache/.lock"
  flock --nonblock 9 && return
  echo "deps: waiting for another one that installs into $cache" >&2
  flock --timeout 1800 9 || { echo "deps: it has not ended within 30 minutes" >&2; exit 1; }
}

install_toolkit() {
  [ "$(cat "$toolkit/.complete" 2>/dev/null)" != "${cuda[*]}" ] || return 0
  echo "deps: installing NVIDIA's compiler and NCCL into $toolkit (about 300 MB, once)"
  rm -rf "$toolkit"
  install_wheels --root-user-action=ignore --no-deps --target "$toolkit" "${cuda[@]}"
  ln -s lib "$toolkit/nvidia/cu13/lib64" # where CMake looks
  echo "${cuda[*]}" >"$toolkit/.complete"
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
    if [ "$(cat "$docs_venv/.complete" 2>/dev/null)" != "${docs[*]}" ]; then
      echo "deps: installing mkdocs into $docs_venv (about 60 MB, once)" >&2
      /usr/bin/python3 -m venv --clear "$docs_venv"
      "$docs_venv/bin/pip" install -q --disable-pip-version-check --no-deps "${docs[@]}" >&2
      echo "${docs[*]}" >"$docs_venv/.complete"
    fi
    echo "$docs_venv"
    exit 0
    ;;
  --gpu)
    # What LibTorch's wheel names as its needs, of the versions that it names.
    lock_cache
    echo "deps: installing CUDA's libraries beside LibTorch (2 GB)"
    install_wheels "torch==$torch_version"
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
    if [ "$(cat "$image_venv/.complete" 2>/dev/null)" != "${image_readers[*]}" ]; then
      echo "deps: installing pytest and the reader of SPDX documents into $image_venv"
      /usr/bin/python3 -m venv --clear "$image_venv"
      "$image_venv/bin/pip" install -q --disable-pip-version-check "${image_readers[@]}"
      echo "${image_readers[*]}" >"$image_venv/.complete"
    fi
    exit 0 ;;
  --programs | --gpu-programs)
    if [ "$(cat "$venv/.programs" 2>/dev/null)" != "${wheels[*]}" ]; then
      echo "deps: installing LibTorch $torch_version into $venv (about 550 MB)"
      [ -x "$venv/bin/pip" ] || /usr/bin/python3 -m venv "$venv"
      install_wheels --no-deps "${wheels[@]}"
      echo "${wheels[*]}" >"$venv/.programs"
    fi
    if [ "$1" = --gpu-programs ]; then
      install_toolkit
      echo "deps: installing CUDA's libraries beside LibTorch (2 GB)"
      install_wheels --no-deps "${cuda_libraries[@]}"
    fi
    exit 0 ;;
esac

stamp="$venv/.complete"
wanted="${wheels[*]} ${readers[*]} ${transformers[*]} ${imaging[*]}"
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  echo "deps: installing LibTorch $torch_version and the test readers into $venv (about 620 MB, once)"
  mkdir -p "$cache"
  [ -x "$venv/bin/pip" ] || /usr/bin/python3 -m venv "$venv"
  install_wheels --no-deps "${wheels[@]}"
  # Of Python's torch only what the readers need is there, which pip remarks upon.
  install_wheels --root-user-action=ignore "${readers[@]}" 2> >(grep -vE "torch .* requires|^ERROR: pip's dependency resolver does not" >&2)
  install_wheels --root-user-action=ignore --no-deps "${transformers[@]}" "${imaging[@]}"
  "$venv/bin/python" -c 'import h5py, numpy, safetensors, tensorboard, matplotlib, pytest'
  echo "$wanted" >"$stamp"
fi

stamp="$venv/.survival"
if [ "$(cat "$stamp" 2>/dev/null)" != "${survival[*]}" ]; then
  echo "deps: installing scikit-survival and lifelines into $venv (about 330 MB, once)"
  install_wheels --root-user-action=ignore --no-deps "${survival[@]}"
  echo "${survival[*]}" >"$stamp"
fi

install_toolkit

stamp="$venv/.dashboards"
if [ "$(cat "$stamp" 2>/dev/null)" != "${dashboards[*]}" ]; then
  echo "deps: installing ${dashboards[*]}"
  install_wheels --root-user-action=ignore --no-deps "${dashboards[@]}"
  echo "${dashboards[*]}" >"$stamp"
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

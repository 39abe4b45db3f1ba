#!/usr/bin/env bash
# Builds real Kubernetes components from their Go modules into the cache; what is there stays.
# usage: [KUBERNETES=1.36.3] build.sh [kube-apiserver|kube-controller-manager|kube-scheduler|kubectl|etcd|kwok|helm|kubeconform|monitoring]...
set -euo pipefail
version="${KUBERNETES:-1.34.4}" etcd_version=3.6.8 kwok_version=0.7.0
helm_version=3.19.5 kubeconform_version=0.7.0 prometheus_operator_version=0.83.0
cache="${TRAINYARD_CACHE:-$HOME/.cache/trainyard}/cluster-$version"
mkdir -p "$cache/bin" "$cache/kubernetes" "$cache/etcd"
export GOTOOLCHAIN=local CGO_ENABLED=0 GOFLAGS="-buildvcs=false -modcacherw -gcflags=all=-dwarf=false" GOMODCACHE="$cache/modules" GOCACHE="$cache/build"
export GOGC="${GOGC:-400}" # the compiler's own: memory for a tenth of the time
command -v go >/dev/null || { echo "test-cluster: Go 1.26 or newer is not on PATH" >&2; exit 1; }

# A module of our own with the release's pinned dependencies: the staging folders of the release are
# published as modules of their own.
prepare_kubernetes() {
  cd "$cache/kubernetes"
  [ -e .complete ] && return
  go mod download "k8s.io/kubernetes@v$version"
  local source="$GOMODCACHE/k8s.io/kubernetes@v$version"
  sed -E -e 's#^module .*#module trainyard.test/kubernetes#' -e "s#=> ./staging/src/(k8s.io/[a-z-]+)#=> \1 v0.${version#*.}#" "$source/go.mod" >go.mod
  cp "$source/go.sum" go.sum
  go mod edit -require="k8s.io/kubernetes@v$version"
  touch .complete
}

build_kubernetes() {
  prepare_kubernetes
  local package=k8s.io/component-base/version client=k8s.io/client-go/pkg/version flags
  flags="-s -w -X $client.gitVersion=v$version"
  flags+=" -X $package.gitVersion=v$version -X $package.gitMajor=${version%%.*} -X $package.gitMinor=$(cut -d. -f2 <<<"$version")"
  flags+=" -X $package.gitTreeState=clean -X $package.gitCommit=$(printf '0%.0s' {1..40}) -X $package.buildDate=1970-01-01T00:00:00Z"
  go build -mod=mod -trimpath -ldflags "$flags" -o "$cache/bin/" "${@/#/k8s.io/kubernetes/cmd/}"
}

build_etcd() {
  cd "$cache/etcd"
  if [ ! -e go.mod ]; then
    go mod init trainyard.test/etcd
    go get "go.etcd.io/etcd/server/v3@v$etcd_version"
  fi
  go build -mod=mod -trimpath -ldflags "-s -w" -o "$cache/bin/etcd" go.etcd.io/etcd/server/v3
}

# Nodes and kubelets that are only said to be there: for tests/bench/scale.
build_kwok() {
  GOBIN="$cache/bin" go install -trimpath -ldflags "-s -w" "sigs.k8s.io/kwok/cmd/kwok@v$kwok_version"
}

# With the release's own dependencies, which are built already.
build_helm() {
  prepare_kubernetes
  mkdir -p "$cache/helm"
  cd "$cache/helm"
  cp ../kubernetes/go.mod ../kubernetes/go.sum .
  go mod edit -require="helm.sh/helm/v3@v$helm_version"
  local flags="-s -w -X helm.sh/helm/v3/internal/version.version=v$helm_version" package
  for package in pkg/lint/rules pkg/chartutil; do # the Kubernetes that a chart is checked for without a cluster
    flags+=" -X helm.sh/helm/v3/$package.k8sVersionMajor=${version%%.*} -X helm.sh/helm/v3/$package.k8sVersionMinor=$(cut -d. -f2 <<<"$version")"
  done
  go build -mod=mod -trimpath -ldflags "$flags" -o "$cache/bin/helm" helm.sh/helm/v3/cmd/helm
}

build_kubeconform() {
  GOBIN="$cache/bin" go install -trimpath -ldflags "-s -w" "github.com/yannh/kubeconform/cmd/kubeconform@v$kubeconform_version"
}

# Not a program: the CustomResourceDefinitions of ServiceMonitor, PodMonitor and PrometheusRule.
build_monitoring() {
  local module="github.com/prometheus-operator/prometheus-operator@v$prometheus_operator_version" kind
  (cd "$cache" && go mod download "$module")
  mkdir -p "$cache/bin/monitoring.new"
  for kind in servicemonitors podmonitors prometheusrules; do
    cp "$GOMODCACHE/$module/example/prometheus-operator-crd/monitoring.coreos.com_$kind.yaml" "$cache/bin/monitoring.new/$kind.yaml"
  done
  mv "$cache/bin/monitoring.new" "$cache/bin/monitoring"
}

kubernetes=()
for name in "${@:-kube-apiserver}"; do
  [ -x "$cache/bin/$name" ] && continue
  echo "test-cluster: building $name (once; some minutes)"
  case "$name" in
    etcd | kwok | helm | kubeconform | monitoring) "build_$name" ;;
    *) kubernetes+=("$name") ;;
  esac
done
[ ${#kubernetes[@]} = 0 ] || build_kubernetes "${kubernetes[@]}" # at once: one links while others compile
echo "$cache/bin"

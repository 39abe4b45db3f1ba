#!/usr/bin/env bash
# Renders the chart for `kubectl apply -f`: manifests/install.yaml, install-namespaced.yaml and gangs.yaml.
# usage: charts/render.sh [--check]     --check compares with what is there, and writes nothing
# Helm is the one that tests/cluster/build.sh builds, or one on PATH; without any it says so and does nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
built="$(ls -d "${TRAINYARD_CACHE:-$HOME/.cache/trainyard}"/cluster-*/bin/helm 2>/dev/null | tail -1)" || true
helm="${HELM:-${built:-$(command -v helm || true)}}"
if [ -z "$helm" ]; then
  echo "SKIPPED: manifests/install*.yaml and gangs.yaml, which Helm renders from charts/trainyard: there is no helm; \`tests/cluster/build.sh helm\` builds it"
  exit 0
fi

# Without what Helm alone reads.
render() {
  "$helm" template trainyard charts/trainyard "$@" | sed -Ez 's/\n +annotations:\n +helm\.sh\/resource-policy: keep//g; s/\n +(helm\.sh\/|app\.kubernetes\.io\/managed-by:)[^\n]*//g; s/# Source: trainyard\/templates\//# charts\/trainyard\/templates\//g'
}
namespace() {
  printf -- '---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n' "$1"
}

install() {
  echo "# The operator for all namespaces: kubectl apply -f install.yaml. Rendered by charts/render.sh; do not edit."
  namespace trainyard-system
  printf '  labels: {pod-security.kubernetes.io/enforce: restricted}\n'
  render --namespace trainyard-system
}
namespaced() {
  echo "# The operator for the jobs of one namespace, \`training\`, in which it is itself, with rights in it alone. For another"
  echo "# one: sed 's/\\btraining\$/mine/'. Rendered by charts/render.sh; do not edit."
  namespace training
  render --namespace training --set scope.namespaced=true,rbac.userRoles=false
}
gangs() {
  echo "# For spec.scheduling.gang, beside install.yaml: the right to PodGroups. Leave in the kinds that the cluster has."
  echo "# Rendered by charts/render.sh; do not edit."
  render --namespace trainyard-system --set gangs.native=true,gangs.volcano=true,gangs.coscheduling=true --show-only templates/gangs.yaml
}

status=0
for pair in install:install namespaced:install-namespaced gangs:gangs; do
  file="manifests/${pair#*:}.yaml"
  if [ "${1:-}" = --check ]; then
    "${pair%%:*}" | diff -u "$file" - || { echo "$file is out of date: run make generate"; status=1; }
  else
    "${pair%%:*}" >"$file.new"
    mv "$file.new" "$file"
  fi
done
exit $status

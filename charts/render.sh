#!/usr/bin/env bash
# Renders the chart for `kubectl apply -f`: manifests/install.yaml, install-namespaced.yaml and gangs.yaml.
# usage: charts/render.sh [--check]     --check compares with what is there, and writes nothing
# Without any Helm (cmake/deps.sh --helm) nothing is written, and --check compares the seals alone, each manifest's last line.
set -euo pipefail
cd "$(dirname "$0")/.."
case "$*" in
  "" | --check) ;;
  *) sed -n 's/^# usage: //p' "$0" >&2; exit 2 ;;
esac
helm="$(cmake/deps.sh --helm)"
build='there is no helm; `tests/cluster/build.sh helm` builds it'
if [ -z "$helm" ] && [ "${1:-}" != --check ]; then
  echo "SKIPPED: manifests/install*.yaml and gangs.yaml, which Helm renders from charts/trainyard: $build"
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

# The last line of a manifest, of what stands before it and of what that is made of: says without Helm whether either has changed.
seal() {
  (cat && cd charts && find render.sh trainyard/{Chart,values,crd}.yaml trainyard/templates -type f ! -name NOTES.txt | LC_ALL=C sort | xargs sha256sum) | sha256sum | sed -E 's/^(.{64}).*/# Seal: \1/'
}

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
status=0
for pair in install:install namespaced:install-namespaced gangs:gangs; do
  file="manifests/${pair#*:}.yaml"
  if [ -z "$helm" ]; then
    [ "$(tail -n 1 "$file")" = "$(head -n -1 "$file" | seal)" ] ||
      { echo "$file or the chart has changed since it was rendered: run make generate ($build)"; status=1; }
    continue
  fi
  "${pair%%:*}" >"$work/made"
  seal <"$work/made" >"$work/seal"
  cat "$work/seal" >>"$work/made"
  if [ "${1:-}" = --check ]; then
    diff -u "$file" "$work/made" || { echo "$file is out of date: run make generate"; status=1; }
  else
    cp "$work/made" "$file.new" && mv "$file.new" "$file" # whole, or as it was
  fi
done
exit $status

#!/usr/bin/env bash
# The operator at scale: against a real etcd, kube-apiserver, kube-scheduler and kube-controller-manager with kwok's
# nodes, in a network namespace of its own, with the rights of manifests/install.yaml and no others.
# usage: run.sh [--quick] [SCENARIO...]     see scale.py; needs root, Go and a release build
set -euo pipefail
cd "$(dirname "$0")/../../.."
[ "$(id -u)" = 0 ] || { echo "scale: needs root, for a network namespace" >&2; exit 1; }
names=(etcd kube-apiserver kube-controller-manager kube-scheduler kwok)
command -v kubectl >/dev/null || names+=(kubectl)
bin="$(tests/cluster/build.sh "${names[@]}" | tee >(cat >&2) | tail -1)"
export PATH="$bin:$PATH" CLUSTER_BIN="$bin" PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/cluster
export TRAINYARD_OPERATOR_BIN="${TRAINYARD_OPERATOR_BIN:-build/release/bin/trainyard-operator}"
# The API server wants an address that is not loopback; a bridge holds it.
exec unshare --net bash -c 'ip link set lo up && ip link add ty0 type bridge && ip addr add 10.250.0.1/24 dev ty0 && ip link set ty0 up && ip route add default dev ty0 && exec "$@"' \
  bash "$(cmake/deps.sh --python)" tests/bench/scale/scale.py "$@"

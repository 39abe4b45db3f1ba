#!/usr/bin/env bash
# The operator against a real etcd, kube-apiserver and kube-controller-manager, and against the
# in-memory API, in a network namespace of its own: nothing of it shows on this machine.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "test-cluster: needs root, for a network namespace" >&2; exit 1; }
names=(etcd kube-apiserver kube-controller-manager)
command -v kubectl >/dev/null || names+=(kubectl)
bin="$(tests/cluster/build.sh "${names[@]}" | tee /dev/stderr | tail -1)"
export PATH="$bin:$PATH" CLUSTER_BIN="$bin" PYTHONDONTWRITEBYTECODE=1
export TRAINYARD_OPERATOR_BIN="${TRAINYARD_OPERATOR_BIN:-build/release/bin/trainyard-operator}"
python="$(cmake/deps.sh --python)"
# What a person types on one machine, with the kubectl that was found or built.
TRAINYARD_BIN="${TRAINYARD_BIN:-build/release/bin/trainyard}" LD_LIBRARY_PATH="$(cmake/deps.sh --stubs)" \
  "$python" -m pytest -q -rs -p no:cacheprovider tests/integration/test_local.py tests/integration/test_transcript.py -k kubectl
# The API server wants an address that is not loopback; a bridge holds it.
inside() {
  unshare --net bash -c 'ip link set lo up && ip link add ty0 type bridge && ip addr add 10.250.0.1/24 dev ty0 && ip link set ty0 up && ip route add default dev ty0 && exec "$@"' \
    bash "$python" -m pytest -q -rs -p no:cacheprovider "$@"
}
inside tests/cluster "$@"
# The conformance suite, which `make test` runs on the in-memory API. Arguments choose among the scenarios.
[ $# -gt 0 ] || inside tests/conformance --server kubernetes

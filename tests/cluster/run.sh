#!/usr/bin/env bash
# The operator against a real etcd, kube-apiserver and kube-controller-manager, and against the
# in-memory API; then as a deployment and by its chart on two real nodes. All of it in namespaces of its own: nothing of
# it shows on this machine, and when this script ends, however it ends, the kernel ends all of it.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "test-cluster: needs root, for a network namespace" >&2; exit 1; }
# Cgroups are in no namespace, and stay when their processes have gone: ours, and those of a run that was killed.
export CLUSTER_CGROUP="trainyard-test-$$" CLUSTER_STATE=""

# Prints what this machine lacks for nodes; nothing: it can run them.
why_no_nodes() {
  local root=/sys/fs/cgroup controller hierarchies=()
  if [ -e "$root/cgroup.controllers" ]; then
    for controller in cpu cpuset memory pids; do
      grep -qw "$controller" "$root/cgroup.controllers" || { echo "$root/cgroup.controllers lacks $controller" && return; }
    done
    hierarchies=("$root")
  else
    hierarchies=("$root"/{cpu,cpuset,memory,pids})
  fi
  for controller in "${hierarchies[@]}"; do
    { mkdir "$controller/$CLUSTER_CGROUP-probe" && rmdir "$controller/$CLUSTER_CGROUP-probe"; } 2>/dev/null ||
      { echo "no cgroup can be made in $controller" && return; }
  done
}
names=(etcd kube-apiserver kube-controller-manager helm kubeconform monitoring)
no_nodes="$(why_no_nodes)"
if [ -z "$no_nodes" ]; then
  cmake/deps.sh --cluster
  names+=(kube-scheduler kubelet kube-proxy)
fi
command -v kubectl >/dev/null || names+=(kubectl)
bin="$(tests/cluster/build.sh "${names[@]}" | tee >(cat >&2) | tail -1)"
export PATH="$bin:$PATH" CLUSTER_BIN="$bin" PYTHONDONTWRITEBYTECODE=1
export TRAINYARD_OPERATOR_BIN="${TRAINYARD_OPERATOR_BIN:-build/release/bin/trainyard-operator}"
export TRAINYARD_BIN="${TRAINYARD_BIN:-build/release/bin/trainyard}"
python="$(cmake/deps.sh --python)"
CLUSTER_STUBS="$(cmake/deps.sh --stubs)" && export CLUSTER_STUBS

remove_cgroups() {
  local folder owner tries
  for folder in $(find /sys/fs/cgroup -depth -type d -path '*/trainyard-test-*'); do
    owner="$(sed -E 's#.*/trainyard-test-([0-9]+).*#\1#' <<<"$folder")"
    [ "$owner" = $$ ] || ! [ -e "/proc/$owner" ] || continue
    for ((tries = 50; tries > 0; tries--)); do # the last process may be a moment from its end
      rmdir "$folder" 2>/dev/null && break
      sleep 0.1
    done
    [ "$tries" -gt 0 ] || echo "test-cluster: cannot remove $folder" >&2
  done
}
child=""
clean_up() {
  [ -z "$child" ] || { kill -KILL "$child" && wait "$child"; } 2>/dev/null || true
  remove_cgroups
  [ -z "$CLUSTER_STATE" ] || rm -rf --one-file-system "$CLUSTER_STATE"
}
trap clean_up EXIT
trap 'exit 130' INT TERM
remove_cgroups
CLUSTER_STATE="$(mktemp -d "${TMPDIR:-/tmp}/trainyard-cluster.XXXXXX")"

# Runs the tests with addresses, mounts and process ids of their own. When `unshare` ends, its child is killed, and with
# that, which is their init, every container, shim and server. The API server wants an address that is not
# loopback; a bridge holds it. Arguments that choose among the tests may choose none of a file.
inside() {
  local setup='mount -t tmpfs none /run && ip link set lo up && ip link add ty0 type bridge && ip addr add 10.250.0.1/24 dev ty0 && ip link set ty0 up &&
    ip route add default dev ty0 && echo 1 >/proc/sys/net/ipv4/ip_forward && "$@"; exit $?'
  setpriv --pdeathsig KILL unshare --net --mount --pid --fork --kill-child --mount-proc bash -c "$setup" bash "$python" -m pytest -q -rs -p no:cacheprovider "$@" &
  child=$!
  local status=0
  wait "$child" || status=$?
  child=""
  [ "$status" = 0 ] || [ "$status" = 5 ] || exit "$status"
}
# What a person types on one machine, with the kubectl that was found or built.
TRAINYARD_THOROUGH=1 LD_LIBRARY_PATH="$CLUSTER_STUBS" "$python" -m pytest -q -rs -p no:cacheprovider tests/integration/test_local.py tests/docs/test_commands.py -k "kubectl or (commands_of and (local or troubleshooting))"
[ $# -gt 0 ] || "$python" -m pytest -q -rs -p no:cacheprovider tests/chart
inside tests/cluster/test_scenarios.py "$@"
if [ -z "$no_nodes" ]; then
  inside tests/cluster/test_packing.py "$@"
  inside tests/cluster/test_nodes.py "$@"
  remove_cgroups
  rm -rf --one-file-system "${CLUSTER_STATE:?}"/*
  inside tests/cluster/test_chart.py "$@"
else
  echo "SKIPPED: tests/cluster/test_packing.py, test_nodes.py and test_chart.py, the scheduler and jobs in containers on two nodes: $no_nodes"
fi
# kube-scheduler's gangs are of Kubernetes 1.36: a control plane of its own, which takes longer to build than all tests to run.
gangs="$(dirname "$bin")/../cluster-1.36.3/bin"
if [ "${TRAINYARD_CLUSTER_136:-}" = 1 ]; then
  KUBERNETES=1.36.3 tests/cluster/build.sh kube-apiserver kube-controller-manager kube-scheduler
fi
if [ -x "$gangs/kube-apiserver" ] && [ -x "$gangs/kube-controller-manager" ] && [ -x "$gangs/kube-scheduler" ]; then
  ln -sf "$bin/etcd" "$gangs/etcd"
  CLUSTER_BIN="$gangs" inside tests/cluster/test_gangs.py "$@"
else
  echo "SKIPPED: tests/cluster/test_gangs.py, PodGroups and the scheduler of Kubernetes 1.36.3, which are not built; TRAINYARD_CLUSTER_136=1 builds them, once"
fi
# The conformance suite, which `make test` runs on the in-memory API. Arguments choose among the scenarios.
[ $# -gt 0 ] || inside tests/conformance --server kubernetes

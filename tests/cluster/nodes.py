"""Kubernetes with two real nodes: control plane, containerd, kubelets, service proxies.

Everything lives in the namespaces that run.sh makes (network, mount, process ids) and ends with them. Each node has a
network and a mount namespace of its own, so that it is a machine to the others: an address, a /run, a /var/lib.
"""

import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import time

import image
from servers import ADDRESS, BIN, Api, Processes, certificate, install, kubeconfig, make_pki, start_api_server, start_etcd, start_scheduler, wait_until

CGROUPS = pathlib.Path("/sys/fs/cgroup")
# Of a node without signs of life: Unknown after the grace period, its pods evicted after the toleration. The
# lease is renewed every 2.5 s; the machine may be busy. Behind an API server that was away all are Unknown, and one
# kubelet may say that it is there ten seconds after the other: that is no reason to evict.
LEASE_SECONDS, GRACE_SECONDS, TOLERATION_SECONDS = 10, 20, 15


def run(*command, timeout=120):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=timeout)
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


def make_cgroup(name):
    """In each hierarchy of version 1, or the one of version 2. run.sh removes it when all is over."""
    if (CGROUPS / "cgroup.controllers").exists():
        (CGROUPS / "cgroup.subtree_control").write_text("+cpu +cpuset +memory +pids")
        (CGROUPS / name).mkdir()
        return
    for hierarchy in CGROUPS.iterdir():
        if not hierarchy.is_symlink() and hierarchy.name != "unified":
            (hierarchy / name).mkdir()
    for file in ("cpuset.cpus", "cpuset.mems"):  # empty ones admit no process
        (CGROUPS / "cpuset" / name / file).write_text((CGROUPS / "cpuset" / file).read_text())


class Node:
    """A machine: `unshare` made its namespaces, and a process that sleeps holds them."""

    def __init__(self, cluster, index):
        self.cluster, self.index, self.name = cluster, index, f"node{index}"
        self.address, self.pods = f"10.250.0.{2 + index}", f"10.244.{index}.0/24"
        self.folder = cluster.folder / self.name
        self.cgroup = f"{os.environ['CLUSTER_CGROUP']}-{index}"
        self.socket = self.folder / "containerd.sock"
        self.folder.mkdir()
        make_cgroup(self.cgroup)
        self.holder = cluster.processes.start(f"{self.name}-holder", "unshare", "--net", "--mount", "sleep", "infinity")
        wait_until(lambda: os.readlink(f"/proc/{self.holder.pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"), 20, f"the namespaces of {self.name}")
        self.connect()

    def inside(self, *command):
        return ["nsenter", f"--target={self.holder.pid}", "--net", "--mount", *map(str, command)]

    def start(self, name, *command):
        return self.cluster.processes.start(f"{self.name}-{name}", *self.inside(*command))

    def connect(self):
        """A cable to the cluster's bridge; and folders that other programs of this machine do not see."""
        run("ip", "link", "add", f"cable{self.index}", "type", "veth", "peer", "name", "eth0", "netns", self.holder.pid)
        run("ip", "link", "set", f"cable{self.index}", "master", "ty0", "up")
        run("ip", "route", "add", self.pods, "via", self.address)
        script = f"""
        ip link set lo up; ip addr add {self.address}/24 dev eth0; ip link set eth0 up; ip route add default via {ADDRESS}
        echo 1 >/proc/sys/net/ipv4/ip_forward
        for folder in /run /var/lib /var/log; do mount -t tmpfs none $folder; done
        """
        run(*self.inside("sh", "-ec", script))

    def start_containerd(self, archive):
        (self.folder / "containerd.toml").write_text(f"""version = 2
root = "{self.folder}/containerd"
state = "/run/containerd"
oom_score = 0
[grpc]
  address = "{self.socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{self.folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image.NAME}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{self.folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
""")
        (self.folder / "cni").mkdir()
        # Each pod on a cable of its own: through a bridge an answer from a pod of the same node would pass the service proxy by.
        (self.folder / "cni/10-pods.conflist").write_text(json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [
            {"type": "ptp", "ipMasq": False, "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": self.pods}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}))
        self.start("containerd", "containerd", "--config", self.folder / "containerd.toml")
        wait_until(lambda: self.ctr("version"), 60, f"containerd of {self.name}")
        self.ctr("images", "import", archive, timeout=600)  # a gigabyte, unpacked

    def ctr(self, *args, timeout=120):
        return run("ctr", "--address", self.socket, "--namespace", "k8s.io", *args, timeout=timeout)

    def start_kubelet(self):
        pki = self.cluster.folder
        if not (pki / f"{self.name}.crt").exists():
            certificate(pki, self.name, f"/O=system:nodes/CN=system:node:{self.name}", f"subjectAltName=IP:{self.address}\nextendedKeyUsage=clientAuth,serverAuth\n")
            kubeconfig(pki, self.name, user=f"{{client-certificate: {pki}/{self.name}.crt, client-key: {pki}/{self.name}.key}}", server=ADDRESS)
            (self.folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")  # nobody there, which a look-up learns at once
            (self.folder / "kubelet.json").write_text(json.dumps({
                "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
                "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": {"clientCAFile": f"{pki}/ca.crt"}},
                "authorization": {"mode": "Webhook"}, "tlsCertFile": f"{pki}/{self.name}.crt", "tlsPrivateKeyFile": f"{pki}/{self.name}.key",
                "containerRuntimeEndpoint": f"unix://{self.socket}", "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{self.cgroup}", "failCgroupV1": False, "failSwapOn": False, "oomScoreAdj": 0,
                "podLogsDir": f"{self.folder}/logs", "volumePluginDir": f"{self.folder}/plugins", "resolvConf": f"{self.folder}/resolv.conf",
                "imageGCHighThresholdPercent": 100, "evictionHard": {"memory.available": "100Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
                "nodeLeaseDurationSeconds": LEASE_SECONDS, "syncFrequency": "10s", "shutdownGracePeriod": "0s"}))
        self.kubelet = self.start("kubelet", BIN / "kubelet", f"--config={self.folder}/kubelet.json", f"--kubeconfig={pki}/{self.name}.kubeconfig", f"--root-dir={self.folder}/kubelet",
                                  f"--hostname-override={self.name}", f"--node-ip={self.address}")

    def start_proxy(self):
        config = self.folder / "proxy.json"
        config.write_text(json.dumps({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables", "hostnameOverride": self.name, "clusterCIDR": "10.244.0.0/16",
            "clientConnection": {"kubeconfig": str(kubeconfig(self.cluster.folder, "manager-of-nodes", user="{token: manager}", server=ADDRESS))}, "conntrack": {"maxPerCore": 0}}))
        self.start("proxy", BIN / "kube-proxy", f"--config={config}")

    def ready(self):
        return any(c["type"] == "Ready" and c["status"] == "True" for c in self.cluster.get("node", self.name)["status"]["conditions"])

    def kill_kubelet(self):
        self.kubelet.send_signal(signal.SIGKILL)
        self.kubelet.wait()


class Cluster(Api):
    """Control plane and two nodes; a person with kubectl."""

    def __init__(self, folder, programs, installed=True):
        """INSTALLED: the CRD and the operator's rights are there."""
        super().__init__("kubernetes", folder, None, Processes(folder))
        self.audit_log = folder / "audit.log"
        self.restarts = []  # of the API server: from when to when, until it was ready
        make_pki(folder)
        certificate(folder, "api-client", "/O=system:masters/CN=kube-apiserver", "extendedKeyUsage=clientAuth\n")
        self.kubeconfig = kubeconfig(folder, "admin")
        start_etcd(folder, self.processes)
        self.start_api_server()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            archive = pool.submit(image.write_image, folder, programs)
            self.start_controllers()
            if installed:
                install(self)
            self.nodes = [Node(self, index) for index in range(2)]
            list(pool.map(lambda node: node.start_containerd(archive.result()), self.nodes))
        archive.result().unlink()
        for node in self.nodes:
            node.start_kubelet()
            node.start_proxy()
        for node in self.nodes:
            wait_until(node.ready, 120, f"{node.name} to be Ready")

    def start_api_server(self):
        policy = self.folder / "audit.json"
        policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}))
        self.server = start_api_server(
            self.folder, self.processes, "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
            f"--kubelet-client-certificate={self.folder}/api-client.crt", f"--kubelet-client-key={self.folder}/api-client.key", f"--kubelet-certificate-authority={self.folder}/ca.crt",
            "--kubelet-preferred-address-types=InternalIP", f"--default-unreachable-toleration-seconds={TOLERATION_SECONDS}", f"--default-not-ready-toleration-seconds={TOLERATION_SECONDS}",
            f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}")
        wait_until(lambda: self.kubectl("get", "--raw", "/readyz") == "ok", 90, "the API server")

    def start_controllers(self):
        manager = kubeconfig(self.folder, "manager")
        self.processes.start("kube-controller-manager", BIN / "kube-controller-manager", f"--kubeconfig={manager}", "--leader-elect=false", "--bind-address=127.0.0.1",
                             f"--service-account-private-key-file={self.folder}/sa.key", f"--root-ca-file={self.folder}/ca.crt",
                             f"--node-monitor-grace-period={GRACE_SECONDS}s", "--node-monitor-period=1s", "--node-eviction-rate=10")
        start_scheduler(manager, self.processes)
        wait_until(lambda: self.get("serviceaccount", "default"), 60, "the default service account")

    def restart_api_server(self):
        began = time.time()
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()
        self.start_api_server()
        self.restarts.append((began, time.time()))

    def node_of(self, pod):
        return next(node for node in self.nodes if node.name == self.get("pod", pod)["spec"]["nodeName"])


def processes_of(pod_uid):
    """Process ids and command lines of a pod's containers, of all of them; read from their cgroups."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"pod{pod_uid}/" in (entry / "cgroup").read_text():
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ").strip()
            except OSError:  # it ended
                continue
    return found

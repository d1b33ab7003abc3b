"""What runs on a node: containerd, the kubelet, kube-proxy; and how they are set.

Settings that are not plain say why. All three are told to be quiet: nine nodes share two processors.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from lab import needs, oci
from lab.control import DOMAIN, Keys, proxy_settings
from lab.inside import LabError, Program
from lab.machines import GATEWAY, PODS, Machine, number_of
from lab.store import SOCKET, START_S, ImageStore, import_image

_LOOK_EVERY_S = 0.05
# Shows the kubelet two NUMA nodes, with a processor each. It reads them below this folder only.
TWO_ZONES = r"""
set -e
real=/sys/devices/system/node shown=/run/lab/numa
mkdir -p $shown
for file in has_cpu has_memory has_normal_memory online possible; do echo 0-1 > $shown/$file; done
for n in 0 1; do
  mkdir -p $shown/node$n/hugepages
  sed "s/^Node 0/Node $n/" $real/node0/meminfo > $shown/node$n/meminfo
  echo $n > $shown/node$n/cpulist
  ln -sfn ../../cpu/cpu$n $shown/node$n/cpu$n
done
echo "10 20" > $shown/node0/distance
echo "20 10" > $shown/node1/distance
mount --bind $shown $real
"""
PLUGINS_OFF = (
    *(f"io.containerd.snapshotter.v1.{name}" for name in ("btrfs", "zfs", "devmapper", "blockfile", "erofs")),
    "io.containerd.nri.v1.nri",
    "io.containerd.internal.v1.opt",  # it makes /opt/containerd
    "io.containerd.tracing.processor.v1.otlp",
    "io.containerd.internal.v1.tracing",
)


class NodePrograms:
    """Starts what runs on one node of the lab in the folder `lab`.

    `two_zones`: the kubelet has two NUMA nodes, and places each pod in one of them.
    """

    def __init__(self, machine: Machine, lab: Path, keys: Keys, *, two_zones: bool = False) -> None:
        self._machine, self._keys = machine, keys
        self._two_zones = two_zones
        self._data, self._log = lab / "nodes" / machine.name, lab / "log"
        self._disk = self._data / "var" / "lib" / "containerd"
        self._store = ImageStore(lab / "store")
        self._name = machine.name
        self.programs: list[Program] = []

    def start(self, images: Sequence[Path]) -> None:
        """Start it all; back when the kubelet runs, which is before the node is ready."""
        missing = self._store.missing(self._disk, images)
        proxy = self._data / "kube-proxy.json"
        proxy.write_text(proxy_settings(self._name, self._keys))
        self._run("kube-proxy", "--config", str(proxy), "--v=0")
        # The kubelet exits when containerd does not answer.
        containerd = self._run("containerd", "-c", str(self._containerd()), "-l", "warn")
        give_up_s = time.monotonic() + START_S
        while not (self._machine.root / SOCKET).is_socket():
            if not containerd.alive or time.monotonic() > give_up_s:
                raise LabError(
                    f"{self._name}: containerd does not start; {containerd.log}:\n{containerd.tail()}"
                )
            time.sleep(_LOOK_EVERY_S)
        for image in missing:
            self.import_image(image)
        if self._two_zones:
            self._machine.run(["sh", "-c", TWO_ZONES])
        self._run(
            "kubelet",
            *("--config", str(self._kubelet()), "--kubeconfig", str(self._keys.node(self._name))),
            *("--hostname-override", self._name, "--node-ip", self._machine.ip, "--v=1"),
        )

    def import_image(self, tar: Path) -> None:
        """Give the node an image."""
        import_image(self._machine.place, tar)
        self._store.add(self._disk, tar)

    def _run(self, name: str, *flags: str) -> Program:
        program = self._machine.popen([name, *flags], self._log / f"{name}-{self._name}")
        self.programs.append(program)
        return program

    def _containerd(self) -> Path:
        networks = self._data / "cni"
        networks.mkdir(exist_ok=True)
        subnet = f"{PODS}.{number_of(self._name)}.0/24"
        plugin = {
            "type": "ptp",
            "ipMasq": False,
            "mtu": 1500,
            "ipam": {
                "type": "host-local",
                "dataDir": "/run/cni-ipam",  # forgotten with the power
                "ranges": [[{"subnet": subnet}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        network = {"cniVersion": "1.0.0", "name": "pod", "plugins": [plugin]}
        (networks / "10-pod.conflist").write_text(json.dumps(network))
        path = self._data / "containerd.toml"
        # restrict_oom_score_adj: else runc fails where this machine holds CAP_SYS_RESOURCE back from us.
        path.write_text(f"""\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = {json.dumps(PLUGINS_OFF)}
[grpc]
  address = "/{SOCKET}"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{oci.PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{needs.plugins()}"]
    conf_dir = "{networks}"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "{needs.runc()}"
      SystemdCgroup = false
""")
        return path

    def _kubelet(self) -> Path:
        path = self._data / "kubelet.json"
        # protectKernelDefaults: check the one kernel that all share, write nothing to it (see machines.NODE).
        # imageGCHighThresholdPercent: an image that was imported cannot be pulled again.
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "0.0.0.0",
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "containerRuntimeEndpoint": f"unix:///{SOCKET}",
            "oomScoreAdj": 0,
            "protectKernelDefaults": True,
            "makeIPTablesUtilChains": False,
            "failSwapOn": False,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self._keys.ca)},
            },
            "authorization": {"mode": "Webhook"},
            "volumePluginDir": "/var/lib/kubelet/volume-plugins",  # by default in /usr
            "podLogsDir": "/var/log/pods",
            "resolvConf": "/etc/resolv.conf",
            "clusterDNS": [GATEWAY],
            "clusterDomain": DOMAIN,
            "imageGCHighThresholdPercent": 100,
            "imageMinimumGCAge": "24h",
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
            },
            "nodeStatusUpdateFrequency": "2s",
            "nodeLeaseDurationSeconds": 8,
            "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
            "syncFrequency": "10s",
            "maxPods": 40,
            "registryPullQPS": 0,
            "kubeAPIQPS": 50,
            "kubeAPIBurst": 100,
        }
        if self._two_zones:
            settings |= {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod"}
        path.write_text(json.dumps(settings, indent=1))
        return path

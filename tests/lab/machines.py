"""The machines of a lab: scripts that run inside one once its first process is there, and what one offers.

A node has mount, process, network, uts, ipc and cgroup namespaces of its own, a switch mount, network and
uts. The network namespace is the sandbox's to keep: when a machine is killed its cables stay plugged in, and
are dark, as those of a machine without power.
"""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.inside import Place, Program

NET = "10.77.0"
GATEWAY = f"{NET}.1"  # the control plane, DNS, and the way from one machine to another's pods
PODS, SERVICES, API_SERVICE = "10.244", "10.96.0.0/16", "10.96.0.1"
NODE_ADDRESSES, SWITCH_ADDRESSES = 10, 100  # node N is .10+N, the Nth switch .100+N
MAX_NODES = 80
OWN = {"node": ("pid", "mnt", "uts", "ipc", "cgroup"), "switch": ("mnt", "uts")}
INTERFACE = {"node": "eth0", "switch": "mgmt"}
# An interface name has 15 characters at most, and ours put two before a machine's name.
MAX_NAME = 13

_COMMON = """\
set -e
mount --make-rprivate /
mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
mount -t tmpfs -o mode=755 run /run
mkdir -p /run/netns /run/lock /run/containerd /run/lab
# The name servers: also where /etc/resolv.conf is a link into /run.
where=$(readlink -m /etc/resolv.conf)
[ -e "$where" ] || case $where in /run/*) mkdir -p "${where%/*}"; touch "$where" ;; esac
[ ! -e "$where" ] || mount --bind "$FOLDER/resolv.conf" "$where"
echo "$NAME" > /proc/sys/kernel/hostname
ip link set lo up
"""
_ROUTES = """\
echo 1 > /proc/sys/net/ipv4/ip_forward
for s in rp_filter send_redirects accept_redirects; do
  for i in all default; do echo 0 > /proc/sys/net/ipv4/conf/$i/$s; done
done
"""
# The bridge's address is to stay: else it is the lowest of its ports', and neighbours remember the last one.
SANDBOX = (
    "mount --make-rprivate /\nmount -t proc proc /proc\n"
    + _COMMON
    + _ROUTES
    + f"""\
ip link add br0 address 02:77:00:00:00:01 type bridge
ip addr add {GATEWAY}/24 dev br0
ip link set br0 up
ip addr add {API_SERVICE}/32 dev lo
ip route add {SERVICES} dev br0 src {GATEWAY}
"""
)
# cgroups as a kubelet wants them: each hierarchy under the names of its controllers. What it would write to
# the one kernel that all share, it is shown as being so already. /var/lib and /var/log are the node's own.
NODE = (
    "mount --make-rprivate /\nmount -t proc proc /proc\n"
    + _COMMON
    + _ROUTES
    + """\
mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
for options in $HIERARCHIES; do
  name=${options#none,}; name=${name#name=}
  mkdir "/sys/fs/cgroup/$name"
  mount -t cgroup -o "$options" cgroup "/sys/fs/cgroup/$name"
  case $name in *,*) for one in $(echo "$name" | tr , ' '); do ln -s "$name" /sys/fs/cgroup/$one; done ;; esac
done
for d in lib log; do mkdir -p "$DATA/var/$d"; mount --bind "$DATA/var/$d" /var/$d; done
mkdir /run/sysctl
shown() {
  [ -e "/proc/sys/$1" ] || return 0
  f=/run/sysctl/$(echo "$1" | tr / _)
  echo "$2" > "$f"
  mount --bind "$f" "/proc/sys/$1"
}
shown vm/overcommit_memory 1
shown vm/panic_on_oom 0
shown kernel/panic 10
shown kernel/panic_on_oops 1
shown kernel/keys/root_maxkeys 1000000
shown kernel/keys/root_maxbytes 25000000
mount --make-rshared /
"""
)
SWITCH = _COMMON + _ROUTES
SCRIPT = {"node": NODE, "switch": SWITCH}


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that runs. `ip`: its management address. `pid`: its first process, as the sandbox counts."""

    name: str
    kind: str
    ip: str
    pid: int
    place: Place

    @property
    def outer_pid(self) -> int:
        """Its first process, as the machine counts that the lab runs on."""
        return self.place.pid

    @property
    def root(self) -> Path:
        """Its files, as seen from outside."""
        return Path(f"/proc/{self.place.pid}/root")

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        stdin: str | bytes | None = None,
        timeout_s: float = 60.0,
        check: bool = True,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command in it. Raises CommandError when it fails (`check`) or is too slow."""
        return self.place.run(argv, stdin=stdin, timeout_s=timeout_s, check=check)

    def popen(self, argv: Sequence[str | Path], log: Path) -> Program:
        """Start a program in it, which runs until it is killed or the machine is."""
        return self.place.popen(argv, log)


def number_of(node: str) -> int:
    """node7 -> 7. Raises ValueError for another name."""
    digits = node.removeprefix("node")
    if not node.startswith("node") or not digits.isdecimal() or not 1 <= int(digits) <= MAX_NODES:
        raise ValueError(f"{node!r}: nodes are named node1 to node{MAX_NODES}")
    return int(digits)


def check_name(name: str) -> None:
    """Raises ValueError for what no machine can be named."""
    if not name or len(name) > MAX_NAME or not name.replace("-", "").isalnum():
        raise ValueError(f"{name!r}: a machine's name has letters, digits and hyphens, {MAX_NAME} at most")


def _each_link(name: str, state: str) -> str:
    links = f"ip -n {name} -o link show type veth | sed 's/^[0-9]*: \\([^@:]*\\).*/\\1/'"
    return f'for i in $({links}); do ip -n {name} link set "$i" {state}; done'


def wire_up(name: str, kind: str, address: str) -> str:
    """Commands for the sandbox: the machine's network, with its management interface on the bridge."""
    port, far = f"m-{name}", INTERFACE[kind]
    pods = f"ip route replace {PODS}.{number_of(name)}.0/24 via {address}\n" if kind == "node" else ""
    return f"""\
set -e
[ -e /run/netns/{name} ] || ip netns add {name}
ip link add {port} type veth peer name {far} netns {name}
ip link set {port} master br0 up
ip -n {name} addr add {address}/24 dev {far}
ip -n {name} link set {far} up
ip -n {name} route add default via {GATEWAY}
{_each_link(name, "up")}
{pods}"""


def power_off(name: str) -> str:
    """Commands for the sandbox, once the machine is killed: its links are dark, its kernel forgets."""
    return f"""\
{_each_link(name, "down")}
ip link del m-{name} 2>/dev/null
ip netns exec {name} nft flush ruleset 2>/dev/null
true
"""

"""What the lab needs of the machine it runs on, what is missing of that, and what to do about it.

Programs of Kubernetes come from `kube.assets`. The rest comes with Debian: nftables and iproute2 are
installed by `make setup`; runc, the network plugins of pods and a static busybox are only unpacked into the
cache, since nothing but the lab wants them.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kube import assets

# The lab's own programs, and those of a control plane.
PROGRAMS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    *assets.LAB_PROGRAMS,
)
OPTIONAL = ("helm",)
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")
PACKAGES = {
    "runc": "usr/sbin/runc",
    "containernetworking-plugins": "usr/lib/cni",
    "busybox-static": "bin/busybox",
}
PLUGINS = ("ptp", "host-local", "loopback")
_HOST = {"ip": "iproute2", "nft": "nftables", "openssl": "openssl", "mount": "mount"}
CGROUP_ROOT = Path("/sys/fs/cgroup")
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
INOTIFY_A_NODE = 10  # kubelet 6, containerd 2, kube-proxy 1; and one to spare
_INOTIFY_MOST = Path("/proc/sys/fs/inotify/max_user_instances")
_APT_S = 300.0
_TRY_S = 20.0


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A hierarchy of cgroups, version 1. `options`: for mount(8); `folder`: where this machine has it."""

    options: str
    folder: Path

    @property
    def name(self) -> str:
        """Of the folder that a node mounts it on."""
        return self.options.removeprefix("none,").removeprefix("name=")


def hierarchies(mountinfo: str | None = None) -> tuple[Hierarchy, ...]:
    """The mounted hierarchies that have one of CONTROLLERS, and systemd's (by which OOM kills are seen)."""
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    found: dict[str, Hierarchy] = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind != "cgroup":
            continue
        own = [word for word in options.split(",") if word in CONTROLLERS or word == "name=systemd"]
        if own:
            words = ",".join(own)
            mounted = f"none,{words}" if words == "name=systemd" else words
            found.setdefault(mounted, Hierarchy(mounted, Path(before.split(" ")[4])))
    return tuple(found.values())


def unpacked() -> Path:
    """Where packages of Debian are unpacked to."""
    return assets.cache_root() / "debian"


def runc() -> Path | None:
    """An installed runc, or the unpacked one."""
    named = shutil.which("runc", path=PATH)
    return Path(named) if named else _unpacked("runc")


def plugins() -> Path | None:
    """The folder with the network plugins of pods."""
    for folder in (
        Path("/opt/cni/bin"),
        Path("/usr/lib/cni"),
        unpacked() / PACKAGES["containernetworking-plugins"],
    ):
        if all((folder / name).is_file() for name in PLUGINS):
            return folder
    return None


def busybox() -> Path | None:
    """A busybox that needs no library: what pods of tests are made of."""
    return _unpacked("busybox-static")


def _unpacked(package: str) -> Path | None:
    path = unpacked() / PACKAGES[package]
    return path if path.exists() else None


def packages_missing() -> tuple[str, ...]:
    have = {"runc": runc(), "containernetworking-plugins": plugins(), "busybox-static": busybox()}
    return tuple(package for package, where in have.items() if where is None)


def fetch_packages() -> int:
    """Download what is missing of PACKAGES and unpack it. Returns the exit status."""
    wanted = packages_missing()
    if not wanted:
        return 0
    if not all(shutil.which(tool) for tool in ("apt-get", "dpkg")):
        say(f"{' '.join(wanted)} come from Debian packages, and this machine has no apt-get.")
        say("Install runc, and the network plugins of pods in /opt/cni/bin; busybox has to be at")
        say(f"{unpacked() / PACKAGES['busybox-static']}. Tests on real nodes are skipped until then.")
        return 1
    with assets.alone(), tempfile.TemporaryDirectory(dir=assets.cache_root()) as scratch:
        download = ["apt-get", "-qq", "download", *wanted]
        if _quietly(download, scratch) and os.geteuid() == 0:
            say("refreshing the package lists")
            _quietly(["apt-get", "-qq", "update"], scratch)
        if trouble := _quietly(download, scratch):
            say(f"apt-get cannot download {' '.join(wanted)}: {trouble}")
            return 1
        for package in sorted(Path(scratch).glob("*.deb")):
            if trouble := _quietly(["dpkg", "-x", str(package), f"{scratch}/root"], scratch):
                say(f"dpkg cannot unpack {package.name}: {trouble}")
                return 1
        # One that is there may be in use: it stays.
        shutil.copytree(f"{scratch}/root", unpacked(), symlinks=True, dirs_exist_ok=True)
    say(f"unpacked {', '.join(wanted)} into {unpacked()}")
    return 0


def _quietly(command: list[str], folder: str) -> str:
    """Run it; "" when it went well, else what it complained of."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_APT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {_APT_S:g} s"
    return "" if done.returncode == 0 else (done.stderr.strip()[-500:] or f"exit status {done.returncode}")


def fetch() -> int:
    """Build and fetch all that can be had without changing the machine. Returns the exit status."""
    return max(assets.build((*PROGRAMS, *OPTIONAL)), fetch_packages())


def lack() -> str | None:
    """None when a lab can run here, else why not and what to do."""
    return lack_of_machine() or _lack_of_programs()


def _lack_of_programs() -> str | None:
    if absent := [*assets.missing(PROGRAMS), *packages_missing()]:
        return f"{', '.join(absent)} not found: run `make lab-assets`"
    absent = [package for program, package in _HOST.items() if shutil.which(program, path=PATH) is None]
    return f"not installed: run `apt-get install {' '.join(absent)}`" if absent else None


def lack_of_machine() -> str | None:
    """What keeps a lab from running here that no download can mend; None: nothing."""
    if sys.platform != "linux":
        return "the lab is made of Linux namespaces, and this is no Linux"
    if os.geteuid() != 0:
        return "not root: namespaces, cgroups and containers need it"
    have = {word for one in hierarchies() for word in one.options.split(",")}
    if not have and (CGROUP_ROOT / "cgroup.controllers").exists():
        return (
            "this machine has cgroup version 2, and the lab's nodes are built on version 1 so far: boot with "
            "systemd.unified_cgroup_hierarchy=0, or run it in a virtual machine that does"
        )
    if absent := [name for name in CONTROLLERS if name not in have]:
        return f"no cgroup controllers {', '.join(absent)} below {CGROUP_ROOT}: the lab's nodes need them"
    for one in hierarchies():
        if not os.access(one.folder, os.W_OK) or os.statvfs(one.folder).f_flag & os.ST_RDONLY:
            return f"{one.folder} is read-only: the lab cannot make cgroups for its nodes"
    return _lack_of_namespaces()


def _lack_of_namespaces() -> str | None:
    with tempfile.TemporaryDirectory() as scratch:
        return overlay_trouble(Path(scratch), "")


def overlay_trouble(folder: Path, advice: str = ": choose a folder on a plain file system") -> str | None:
    """Why containers' file systems cannot lie in the folder; None when they can."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for name in ("lower", "upper", "work", "merged"):
            (Path(scratch) / name).mkdir()
        mount = "lowerdir=lower,upperdir=upper,workdir=work"
        command = ["unshare", "-m", "-p", "-n", "-u", "-i", "--fork", "mount", "-t", "overlay", "-o", mount]
        try:
            done = subprocess.run(
                [*command, "overlay", "merged"],
                cwd=scratch,
                capture_output=True,
                text=True,
                timeout=_TRY_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"no namespaces: {error}"
    if done.returncode == 0:
        return None
    said = " ".join(done.stderr.split())
    if "unshare" in said.partition(":")[0]:
        return f"this kernel or container allows no new namespaces (CAP_SYS_ADMIN): {said}"
    return f"no overlay file system below {folder}{advice} ({said})"


def inotify_trouble(nodes: int, used: int | None = None, most: int | None = None) -> str | None:
    """Why so many more nodes cannot be watched; None when they can.

    The kernel lets a user have few inotify instances (inotify(7)), and all labs are the same user's.
    """
    used = _inotify_used() if used is None else used
    most = int(_INOTIFY_MOST.read_text()) if most is None else most
    wanted = nodes * INOTIFY_A_NODE
    if not wanted or used + wanted <= most:
        return None
    return (
        f"{nodes} more nodes need {wanted} inotify instances, and {used} of {most} are in use: end another "
        "lab, or allow more with `sysctl fs.inotify.max_user_instances=1024`"
    )


def _inotify_used(pid: str = "[0-9]*") -> int:
    used = 0
    for fd in Path("/proc").glob(f"{pid}/fd/*"):
        with contextlib.suppress(OSError):  # it ends while we look
            used += str(fd.readlink()) == "anon_inode:inotify"
    return used


def say(text: str) -> None:
    print(f"lab-assets: {text}", file=sys.stderr, flush=True)

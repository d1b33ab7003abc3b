"""A fresh root of this machine's Debian release, and programs that run in it as on a machine of its own.

What is mounted is mounted in a namespace that ends with the program.
"""

import importlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.real import ROOT

sys.path.append(str(ROOT / "deploy"))
builders: Any = importlib.import_module("image_builders")
machine: Any = importlib.import_module("image_machine")

_TIMEOUT_S = 900.0  # an installation, on a machine where much else runs
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "COLUMNS": "100",
}
# Arguments: the root, "rw" or "ro" for it, the number of folders that stay writable, these, the command.
_MOUNT = """
set -e
root=$1 mode=$2 count=$3
shift 3
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
while [ "$count" -gt 0 ]; do
  mount --bind "$root/$1" "$root/$1"
  shift
  count=$((count - 1))
done
mount -o "remount,bind,$mode" "$root"
exec chroot "$root" "$@"
"""


@dataclass(frozen=True)
class DebianRoot:
    """`folder` is its root."""

    folder: Path

    def command(
        self, *argv: str, network: Path | None = None, writable: Sequence[str] | None = None
    ) -> list[str]:
        """The command line that runs a program in it, as root.

        `network`: a network namespace, instead of this machine's. `writable`: the only folders that can be
        written to, without a leading slash; None: all.
        """
        joined = [] if network is None else ["nsenter", f"--net={network}"]
        alone = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
        kept = [str(len(writable or ())), *(writable or ())]
        mounted = ["sh", "-c", _MOUNT, "sh", str(self.folder), "rw" if writable is None else "ro", *kept]
        return ["setpriv", "--pdeathsig", "KILL", *joined, *alone, *mounted, *argv]

    def start(
        self, log: Path, *argv: str, network: Path, writable: Sequence[str]
    ) -> "subprocess.Popen[bytes]":
        """Start a program that goes on; what it prints goes to the log."""
        command = self.command(*argv, network=network, writable=writable)
        with log.open("wb") as lines:
            return subprocess.Popen(
                command, env=_ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=lines, stderr=subprocess.STDOUT
            )

    def run(self, *argv: str, network: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Run a program to its end."""
        return subprocess.run(
            self.command(*argv, network=network),
            env=_ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )

    def shell(self, script: str) -> str:
        """What a script of bash prints to standard output; each of its commands must succeed."""
        done = self.run("bash", "-euc", script)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def paths(self) -> set[str]:
        """Everything that is in it, but for the notes of dpkg and logs."""
        found = (str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))
        return {path for path in found if not path.startswith(("var/lib/dpkg/", "var/log/"))}


@contextmanager
def debian_root(folder: Path, *packages: str) -> Iterator[DebianRoot]:
    """A root with Debian's minimum and these packages. It can reach packages as this machine does."""
    root = folder / "root"
    codename = platform.freedesktop_os_release()["VERSION_CODENAME"]
    builders.bootstrap(codename, root, folder / "debootstrap.log", print, packages)
    for name, path in machine.access(folder).items():
        place = root / machine.PLACES[name]
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    for name in ("resolv.conf", "hosts"):
        shutil.copyfile(f"/etc/{name}", root / "etc" / name)
    try:
        yield DebianRoot(root)
    finally:
        shutil.rmtree(root)  # hundreds of megabytes, which pytest would keep


@contextmanager
def loopback() -> Iterator[Path]:
    """A network namespace that has only loopback, as a path for `DebianRoot.command`."""
    script = "ip link set lo up && echo up && exec sleep infinity"
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", script]
    environment = os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            yield Path(f"/proc/{process.pid}/ns/net")
        finally:
            process.kill()

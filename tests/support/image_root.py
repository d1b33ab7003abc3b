"""An image's archive, unpacked, and its programs run in that root as a pod's containers run them.

Read-only, nothing of this machine in it but /proc, /sys and what stands in for the pod's /tmp. What is
mounted is mounted in a namespace that ends with the program.
"""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

USER = 10001
NET_RAW = 13  # capabilities(7)
_TIMEOUT_S = 120.0  # a start-up, on a machine where much else runs
_MOUNT = """
set -e
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --bind "$2" "$1/tmp"
shift 2
exec "$@"
"""
# As runtimes do for `drop: [ALL], add: [NET_RAW]`: what is not in the bounding set does not outlast an exec.
_AS_LISTENER = f"""
import ctypes, os, sys
libc = ctypes.CDLL(None)
for capability in range(64):
    capability == {NET_RAW} or libc.prctl(24, capability, 0, 0, 0)
os.setgroups([{USER}])
os.execvp(sys.argv[1], sys.argv[1:])
"""


@dataclass(frozen=True)
class ImageRoot:
    """`folder` holds the root; `tmp` is its /tmp, which any user may write to."""

    archive: Path
    folder: Path
    tmp: Path

    @classmethod
    def unpacked(cls, archive: Path, folder: Path) -> "ImageRoot":
        root = cls(archive, folder / "root", folder / "tmp")
        root.folder.mkdir(parents=True, mode=0o755)
        root.tmp.mkdir()
        root.tmp.chmod(0o1777)
        for layer in root.manifest["Layers"]:
            with subprocess.Popen(["tar", "-xOf", archive, layer], stdout=subprocess.PIPE) as whole:
                command = ["tar", "-x", "--numeric-owner", "-C", root.folder]
                subprocess.run(command, stdin=whole.stdout, check=True, timeout=_TIMEOUT_S)
        return root

    @cached_property
    def manifest(self) -> dict[str, Any]:
        [only] = json.loads(self._member("manifest.json"))
        return dict(only)

    @cached_property
    def config(self) -> dict[str, Any]:
        """What the image says of itself: config, history."""
        return dict(json.loads(self._member(self.manifest["Config"])))

    def files(self, pattern: str = "*") -> list[Path]:
        """Files of the root, as paths in it; without links, which might lead to this machine's."""
        found = sorted(self.folder.rglob(pattern))
        return [p.relative_to(self.folder) for p in found if p.is_file() and not p.is_symlink()]

    def command(self, *argv: str, listener: bool = False) -> list[str]:
        """The command line that runs a program in it: as the image's user, or as the listener's root."""
        alone = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
        mounted = [*alone, "sh", "-c", _MOUNT, "sh", str(self.folder), str(self.tmp)]
        entry = ["chroot", *(() if listener else (f"--userspec={USER}:{USER}",)), str(self.folder)]
        inside = ["/usr/bin/python3", "-c", _AS_LISTENER, *argv] if listener else [*argv]
        return [*mounted, *entry, *inside]

    @property
    def environment(self) -> dict[str, str]:
        """The image's own, and what finds chroot and mount on this machine."""
        own = dict(line.split("=", 1) for line in self.config["config"]["Env"])
        return own | {"PATH": f"{own['PATH']}:/usr/sbin:/usr/bin:/sbin:/bin"}

    def run(
        self, *argv: str, listener: bool = False, stdin: bytes | None = None
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run a program to its end."""
        return subprocess.run(
            self.command(*argv, listener=listener),
            env=self.environment,
            input=stdin,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )

    def python(self, program: str, *, listener: bool = False) -> str:
        """What a Python program says; it must end well."""
        done = self.run("python3", "-c", program, listener=listener)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def _member(self, name: str) -> bytes:
        command: Sequence[str | Path] = ["tar", "-xOf", self.archive, name]
        return subprocess.run(command, capture_output=True, check=True, timeout=_TIMEOUT_S).stdout

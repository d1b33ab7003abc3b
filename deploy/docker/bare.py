"""Copies the files that an image needs, and no others, into a folder that becomes its root.

    bare.py /bare --packages /opt/hyperscout [--program /usr/sbin/ibnetdiscover ...] [--without MODULE ...]

The image has no package manager, shell or compiler, so they need no update and cannot be misused. The
libraries that `ldd` names are copied with each program, and the standard library without parts that a daemon
does not use. var/lib/dpkg/status.d lists the Debian packages of the files, in the format that scanners read,
with their copyright. Runs in the build stage with Debian's own Python, and writes only into that folder.
"""

import argparse
import compileall
import fnmatch
import os
import py_compile
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
STDLIB = Path(f"/usr/lib/python{VERSION}")
USER = 10001
_TIMEOUT_S = 120

# Left out of the standard library: paths below /usr/lib/python3.x.
_STDLIB_WITHOUT = (
    *("__pycache__", "*/__pycache__"),  # written again, so that they contain the right paths
    # pip's, a crash reporter's, a linker's
    *("EXTERNALLY-MANAGED", "sitecustomize.py", "config-*"),
    *("ensurepip", "venv", "distutils", "lib2to3", "idlelib", "tkinter", "turtle.py", "turtledemo", "test"),
    *("pydoc_data", "doctest.py", "pdb.py", "__phello__*", "antigravity.py", "this.py"),
    # for terminals and other systems
    *("curses", "lib-dynload/_curses*", "lib-dynload/readline*", "cgi.py", "cgitb.py", "webbrowser.py"),
    *("msilib", "_aix_support.py", "_osx_support.py", "_bootsubprocess.py"),
    *("lib-dynload/_test*", "lib-dynload/_xxtest*", "lib-dynload/xxlimited*", "lib-dynload/_ctypes_test*"),
    # Berkeley DB; NIS, which needs Kerberos
    *("dbm", "lib-dynload/_dbm*", "lib-dynload/nis*", "crypt.py", "lib-dynload/_crypt*"),
    *("lib-dynload/_codecs_*", "lib-dynload/audioop*", "lib-dynload/ossaudiodev*"),
)
# Left out of the installed packages: paths below site-packages.
_PACKAGES_WITHOUT = (
    *("__pycache__", "*/__pycache__", "*/tests", "*.dist-info/RECORD", "*.dist-info/INSTALLER"),
    *("*.pyi", "*.pyx", "*.pxd", "*.pxi", "*.c", "*.cc", "*.h", "*.a", "*.f90"),
    # scapy decodes LLDP frames: that needs its core, one layer and one contribution.
    *("scapy/libs/winpcapy.py", "scapy/libs/manuf.py", "scapy/modules", "scapy/tools", "scapy/asn1"),
    *("scapy/layers/[!_l]*", "scapy/layers/l[!2]*", "scapy/contrib/[!_l]*", "scapy/contrib/l[!l]*"),
    *("scapy/arch/windows", "scapy/arch/bpf", "scapy/cbor"),
    # The collector reads Kubernetes objects as JSON. The classes of all kinds take 120 MB.
    *("kubernetes/client/api/[!_]*", "kubernetes/aio/client/api/[!_]*", "kubernetes/e2e_test"),
    *("kubernetes/client/models/[!_]*", "kubernetes/aio/client/models/[!_]*"),
    *("numpy/f2py", "numpy/_pyinstaller", "numpy/distutils", "numpy/_core/_*_tests*", "numpy/_core/_simd*"),
)
_LINKER = re.compile(r"^\s*(/\S+) \(0x", re.MULTILINE)
_LIBRARY = re.compile(r"^\s*\S+ => (/\S+) \(0x", re.MULTILINE)
_MISSING = re.compile(r"^\s*(\S+) => not found", re.MULTILINE)
_FILES = {
    "etc/passwd": f"root:x:0:0:root:/:/none\nhyperscout:x:{USER}:{USER}:hyperscout:/tmp:/none\n",
    "etc/group": f"root:x:0:\nhyperscout:x:{USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    # Replaces scapy's own list of 40,000 vendors of network cards.
    "usr/share/wireshark/manuf": "# no names\n",
}


class Bare:
    """The root file system that is being built."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._origins: set[Path] = set()

    def skeleton(self) -> None:
        """Make the folders and files that programs and container runtimes expect."""
        for name in ("bin", "lib", "lib64", "sbin"):
            (self.root / "usr" / name).mkdir(parents=True)
            (self.root / name).symlink_to(f"usr/{name}")
        for name in ("dev", "etc", "proc", "run", "sys", "var/lib/hyperscout"):
            (self.root / name).mkdir(parents=True)
        (self.root / "var/run").symlink_to("../run")
        (self.root / "tmp").mkdir(mode=0o1777)
        (self.root / "tmp").chmod(0o1777)
        os.chown(self.root / "var/lib/hyperscout", USER, USER)
        for name, text in _FILES.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        self.file(Path("/etc/os-release"))

    def file(self, path: Path) -> None:
        """Copy one file of this machine; of a link its target, under the link's name."""
        real = path.resolve()
        place = self._place(path)
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(real, place)
            self._origins.add(real)

    def tree(self, path: Path, without: Iterable[str]) -> None:
        """Copy a folder without paths that match."""
        leave = tuple(without)

        def ignore(folder: str, names: list[str]) -> set[str]:
            under = Path(folder).relative_to(path)
            return {n for n in names if any(fnmatch.fnmatch(str(under / n), pattern) for pattern in leave)}

        shutil.copytree(path, self._place(path), ignore=ignore, dirs_exist_ok=True)
        if path.is_relative_to("/usr"):
            self._origins.update(p for p in path.rglob("*") if self._place(p).is_file())

    def libraries(self) -> None:
        """Copy the libraries that the programs and libraries copied so far are linked with."""
        for program in list(_elves(self.root)):
            # ldd reads the original: libraries of a package are found by their paths relative to it.
            said = _output(["ldd", str(Path("/") / program.relative_to(self.root))])
            if missing := _MISSING.findall(said):
                raise SystemExit(f"bare: {program}: libraries not found: {', '.join(missing)}")
            for name in (*_LINKER.findall(said), *_LIBRARY.findall(said)):
                self.file(Path(name))

    def strip(self) -> None:
        """Remove debug symbols from extension modules, but not from bundled libraries (*.libs)."""
        for library in _elves(self.root / "opt"):
            if not library.parent.name.endswith(".libs") and ".so" in library.name:
                subprocess.run(["strip", "--strip-unneeded", library], check=True, timeout=_TIMEOUT_S)

    def compiled(self) -> None:
        """Write .pyc files, since the root is read-only at run time. Python does not check sources."""
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        for folder in (self._place(STDLIB), self.root / "opt"):
            fine = compileall.compile_dir(
                folder, maxlevels=20, quiet=1, workers=0, invalidation_mode=mode, stripdir=str(self.root)
            )
            if not fine:
                raise SystemExit(f"bare: {folder} could not be compiled")

    def origins(self) -> None:
        """List the Debian packages of the copied files, for vulnerability scanners."""
        paths = [p for path in self._origins for p in (str(path), str(path).removeprefix("/usr"))]
        said = _output(["dpkg-query", "-S", *paths], accept=(0, 1))
        packages = {owner.split(":")[0] for owner in re.findall(r"^(\S+): /", said, re.MULTILINE)}
        status = self.root / "var/lib/dpkg/status.d"
        status.mkdir(parents=True)
        for package in sorted(packages):
            (status / package).write_text(_output(["dpkg-query", "-s", package]))
            copyright_ = Path("/usr/share/doc") / package / "copyright"
            if copyright_.exists():
                self.file(copyright_)

    def _place(self, path: Path) -> Path:
        """The path in the root for a path of this machine; /lib is /usr/lib."""
        parts = path.parts[1:]
        if parts[0] in ("bin", "lib", "lib64", "sbin"):
            parts = ("usr", *parts)
        return self.root.joinpath(*parts)


def _elves(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def _output(command: list[str], accept: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    if done.returncode not in accept and "not a dynamic executable" not in done.stderr + done.stdout:
        raise SystemExit(f"bare: {' '.join(command[:3])}: {done.stderr.strip()[-500:]}")
    return done.stdout


def main() -> None:
    """Fill the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--packages", type=Path, required=True, help="a virtual environment without pip")
    parser.add_argument("--program", type=Path, action="append", default=[])
    parser.add_argument("--without", action="append", default=[], help="a path in the standard library")
    given = parser.parse_args()
    bare = Bare(given.root)
    bare.skeleton()
    site = given.packages / "lib" / f"python{VERSION}" / "site-packages"
    interpreter = Path(f"/usr/bin/python{VERSION}")
    for program in (interpreter, *given.program):
        bare.file(program)
    (given.root / "usr/bin/python3").symlink_to(interpreter.name)
    bare.tree(STDLIB, (*_STDLIB_WITHOUT, *given.without))
    bare.tree(site, _PACKAGES_WITHOUT)
    for name in ("python", "python3", f"python{VERSION}"):
        link = given.root / given.packages.relative_to("/") / "bin" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"/usr/bin/python{VERSION}")
    bare.file(given.packages / "pyvenv.cfg")
    bare.libraries()
    bare.strip()
    bare.compiled()
    bare.origins()


if __name__ == "__main__":
    main()

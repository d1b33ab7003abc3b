"""Builds Debian packages of the agent and the collector, for clusters without Kubernetes.

    make packages                 into dist/
    deploy/packages.py DIR        from the wheel in DIR, into DIR

Each package holds a virtual environment below /opt with exactly the packages of the image (`docker/*.txt`), a
systemd unit that is not enabled, and settings in /etc/hyperscout. It fits the Debian release that it is built
on, since compiled Python packages belong to one version of Python. Formats: deb(5), deb-control(5).
"""

import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import render

DEPLOY = Path(__file__).resolve().parent
DEBIAN = DEPLOY / "debian"
PYTHON = Path("/usr/bin/python3")  # Debian's own, which the installed package runs
_DEPENDS = "ca-certificates, libstdc++6, passwd"
_TIMEOUT_S = 900


class PackagesError(RuntimeError):
    """A package cannot be built; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package.

    `user`: the account that its service runs as. `program`: in /usr/bin. `state`: the folder that the service
    writes, which a purge deletes; "" if it writes none.
    """

    part: str
    user: str
    summary: str
    program: str
    recommends: str = ""
    share: bool = False
    state: str = ""

    @property
    def name(self) -> str:
        return f"hyperscout-{self.part}"

    @property
    def home(self) -> str:
        return f"opt/{self.name}"


PACKAGES = (
    Package(
        part="agent",
        user="hyperscout-agent",
        summary="network topology discovery: the agent, for each compute node",
        program="hyperscout-agent",
        recommends="infiniband-diags",
    ),
    Package(
        part="collector",
        user="hyperscout",
        summary="network topology discovery: the collector and the command line",
        program="hyperscout",
        share=True,
        state="/var/lib/hyperscout",
    ),
)


def run(command: list[str | Path]) -> str:
    """Standard output of a program. Raises PackagesError with its last lines."""
    words = list(map(str, command))
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except FileNotFoundError as error:
        raise PackagesError(
            f"{words[0]} not found: packages are built on Debian and its relatives"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise PackagesError(f"{words[0]} took more than {_TIMEOUT_S} s") from error
    if done.returncode:
        tail = "\n".join((done.stderr or done.stdout).splitlines()[-10:])
        raise PackagesError(f"{' '.join(words[:4])} ... failed:\n{tail}")
    return done.stdout


def version(wheel: Path) -> str:
    """The version in the name of a wheel."""
    return wheel.name.split("-")[1]


def python_version() -> str:
    """The version of Debian's Python, such as 3.11. Raises PackagesError."""
    return run([PYTHON, "-c", "import sys; print(*sys.version_info[:2], sep='.')"]).strip()


def check_python(found: str) -> None:
    """Raises PackagesError if the locked requirements are not for this version of Python."""
    if found != render.PYTHON_VERSION:
        raise PackagesError(
            f"{PYTHON} is Python {found}: the requirements in deploy/docker are resolved for Python "
            f"{render.PYTHON_VERSION}: build on a Debian release with that version (Debian 12 has 3.11)"
        )


def make_environment(root: Path, package: Package, wheel: Path) -> None:
    """Make the virtual environment of the package below root."""
    home = root / package.home
    run([PYTHON, "-m", "venv", "--without-pip", home])
    python = home / "bin" / "python3"
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    pip += ["install", "--quiet", "--no-deps", "--no-compile", "--only-binary=:all:"]
    run([*pip, "--require-hashes", "-r", DEPLOY / "docker" / f"{package.part}.requirements.txt"])
    # By its name: of a path pip would note where it was.
    run([*pip, "--no-index", "--find-links", wheel.parent, f"hyperscout=={version(wheel)}"])
    for file in (home / "bin").iterdir():
        if not file.is_symlink():  # scripts name the interpreter of the build folder
            file.write_bytes(file.read_bytes().replace(os.fsencode(root), b""))
    (home / "pyvenv.cfg").write_text(
        re.sub(r"^command = .*\n", "", (home / "pyvenv.cfg").read_text(), flags=re.MULTILINE)
    )
    invalidation = ["--invalidation-mode", "unchecked-hash"]
    run([python, "-m", "compileall", "-q", "-j", "0", *invalidation, "-s", root, "-p", "/", home / "lib"])


def place_files(root: Path, package: Package) -> None:
    """Place the unit, the settings, manual pages and completion scripts."""
    home, share = root / package.home, root / "usr" / "share"
    if package.share:
        shutil.copytree(DEPLOY / "share", share)
        (share / "zsh/site-functions").rename(share / "zsh/vendor-completions")  # where Debian's zsh looks
        for page in (share / "man").rglob("*.1"):
            page.with_name(f"{page.name}.gz").write_bytes(gzip.compress(page.read_bytes(), mtime=0))
            page.unlink()
    shutil.rmtree(home / "share")
    unit, settings = f"{package.name}.service", f"{package.part}.yaml"
    for source, target in (
        (DEBIAN / unit, root / "usr/lib/systemd/system" / unit),
        (DEBIAN / settings, root / "etc/hyperscout" / settings),
        (DEPLOY.parent / "LICENSE", share / "doc" / package.name / "copyright"),
    ):
        target.parent.mkdir(parents=True)
        shutil.copyfile(source, target)
    programs = root / "usr/bin"
    programs.mkdir()
    (programs / package.program).symlink_to(f"/{package.home}/bin/hyperscout")


def write_control(root: Path, package: Package, release: str) -> None:
    """Write the control files."""
    folder = root / "DEBIAN"
    folder.mkdir()
    size = sum(f.stat().st_size for f in root.rglob("*") if f.is_file() and not f.is_symlink())
    major, minor = map(int, render.PYTHON_VERSION.split("."))
    fields = {
        "Package": package.name,
        "Version": release,
        "Architecture": run(["dpkg", "--print-architecture"]).strip(),
        "Maintainer": "hyperscout developers <hyperscout@example.org>",
        "Section": "net",
        "Priority": "optional",
        "Installed-Size": str(size // 1024),
        "Depends": f"python3 (>= {major}.{minor}), python3 (<< {major}.{minor + 1}), {_DEPENDS}",
        "Recommends": package.recommends,
        "Description": package.summary,
    }
    text = "".join(f"{key}: {value}\n" for key, value in fields.items() if value)
    (folder / "control").write_text(text)
    (folder / "conffiles").write_text(f"/etc/hyperscout/{package.part}.yaml\n")
    for name in ("postinst", "prerm", "postrm"):
        (folder / name).write_text(script(name, package))
        (folder / name).chmod(0o755)


def script(name: str, package: Package) -> str:
    """The text of a maintainer script, with the values of the package."""
    text = (DEBIAN / name).read_text()
    for mark, value in (("@NAME@", package.name), ("@USER@", package.user), ("@STATE@", package.state)):
        text = text.replace(mark, value)
    return text


def build(folder: Path, package: Package) -> Path:
    """Build the package from the wheel in that folder. Raises PackagesError."""
    wheels = sorted(folder.glob("hyperscout-*.whl"))
    if len(wheels) != 1:
        raise PackagesError(f"{folder}: {len(wheels)} wheels of hyperscout; run `make dist` first")
    check_python(python_version())
    os.umask(0o022)  # the services' users read what is built here
    with tempfile.TemporaryDirectory(prefix="hyperscout-deb-") as scratch:
        root = Path(scratch, "root")
        root.mkdir(mode=0o755)
        make_environment(root, package, wheels[0])
        place_files(root, package)
        write_control(root, package, version(wheels[0]))
        # zstd: a sixth larger than with xz, in a twentieth of the time.
        run(["dpkg-deb", "--build", "--root-owner-group", "-Zzstd", "-z9", root, folder])
    return next(folder.glob(f"{package.name}_*.deb"))


def main(folder: Path) -> int:
    """Run `make packages`."""
    if not PYTHON.is_file():
        print(f"packages: {PYTHON} not found: packages are built on Debian with python3", file=sys.stderr)
        return 1
    for old in folder.glob("*.deb"):
        old.unlink()
    try:
        for package in PACKAGES:
            print(f"packages: building {package.name} (a minute)", flush=True)
            path = build(folder, package)
            print(f"packages: {path} ({path.stat().st_size >> 20} MiB)", flush=True)
    except PackagesError as error:
        print(f"packages: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: deploy/packages.py DIR")
    sys.exit(main(Path(sys.argv[1])))

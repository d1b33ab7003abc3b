"""Builders of images behind one interface: buildah, docker, podman.

buildah needs no engine: it runs in its own mount and process namespaces, so that it leaves nothing mounted
and ends with its parent process, and keeps its storage in the cache. If no registry is reachable, debootstrap
makes the base image under the same name, so that the recipes stay unchanged. docker and podman fetch base
images.
"""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from image_machine import overlays, secrets, sources
from image_steps import BuildError, Say, ends_with_us, follow

_PULL_S = 90  # a base image is 30 MB; a firewall may drop packets
_QUICK_S = 60
_CODENAMES = {"12": "bookworm", "13": "trixie"}
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
# As in Debian's own images: no fsync, no documentation, no downloaded packages.
_DPKG = """force-unsafe-io
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/man/*
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*
"""
_APT = 'APT::Keep-Downloaded-Packages "false";\nAcquire::Languages "none";\n'
_POLICY = "#!/bin/sh\nexit 101\n"  # the installation of a package starts no daemon
# buildah always records pushes in /var/lib/containers. Its own mount namespace redirects that folder.
_ASIDE = 'mkdir -p /var/lib/containers && mount --bind "$1" /var/lib/containers; shift; exec "$@"'
_EMPTIED = ("var/lib/apt/lists", "var/cache/apt/archives", "usr/share/man", "usr/share/locale")


class NoBuilderError(Exception):
    """This machine has no builder; the text says what to install."""


class Builder(Protocol):
    """Builds the images of recipes (paths within a folder), and writes them as archives."""

    @property
    def name(self) -> str:
        """Name of the program."""

    def prepare(self, base: str, context: Path, recipe: str) -> None:
        """Provide the base image, and build the steps that all recipes share."""

    def build(self, context: Path, recipe: str, image: str, arguments: dict[str, str]) -> None:
        """Build the image and give it that name."""

    def save(self, recipe: str, image: str, archive: Path) -> None:
        """Write the image with its name, in the format of `docker load` and `ctr images import`."""


def tool(name: str) -> str | None:
    """Path of a program, also in system folders."""
    return shutil.which(name, path=_PATH)


def find(cache: Path, say: Say) -> Builder:
    """The first builder that works. Raises NoBuilderError."""
    if os.geteuid() == 0 and (buildah := tool("buildah")):
        return Buildah(buildah, cache, say)
    for engine in filter(None, map(tool, ("docker", "podman"))):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run([engine, "info"], capture_output=True, timeout=_QUICK_S, check=False)
            if done.returncode == 0:
                return Engine(engine, cache, say)
    raise NoBuilderError(
        "no builder of images found: as root, `apt-get install buildah debootstrap`; or start docker"
    )


def bootstrap(codename: str, root: Path, log: Path, say: Say, packages: Sequence[str] = ()) -> None:
    """Make a minimal Debian root with these packages, from this machine's package sources.

    Raises:
        NoBuilderError: debootstrap is not installed.
        BuildError: it failed.
    """
    debootstrap = tool("debootstrap")
    if debootstrap is None:
        raise NoBuilderError("debootstrap not found: `apt-get install debootstrap` to make a root of Debian")
    from_where = sources(codename)
    command = [debootstrap, "--variant=minbase"]
    if packages:
        command.append(f"--include={','.join(packages)}")
    command += [codename, str(root), *(uri for uri, _ in from_where[:1])]  # without: debootstrap's own choice
    follow(ends_with_us(command), "debootstrap", log, say, environment={"DPKG_FORCE": "unsafe-io"})
    (root / "usr/sbin/policy-rc.d").write_text(_POLICY)
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    if from_where:
        lines = (f"deb {uri} {suite} main\n" for uri, suite in from_where)
        (root / "etc/apt/sources.list").write_text("".join(lines))


@dataclass(frozen=True, slots=True)
class Buildah:
    """buildah, with its storage in the cache."""

    program: str
    cache: Path
    say: Say

    @property
    def name(self) -> str:
        return "buildah"

    def prepare(self, base: str, context: Path, recipe: str) -> None:
        self._run(["rm", "--all"], "both")  # containers of builds that were killed
        if not self._holds(base):
            self._base(base)
        self._build(context, recipe, "both", ["--target", "own"])

    def build(self, context: Path, recipe: str, image: str, arguments: dict[str, str]) -> None:
        self._build(context, recipe, Path(recipe).stem, ["--tag", image, *_arguments(arguments)])

    def save(self, recipe: str, image: str, archive: Path) -> None:
        archive.unlink(missing_ok=True)
        self._run(["push", "--quiet", image, f"docker-archive:{archive}:{image}"], Path(recipe).stem)

    def _build(self, context: Path, recipe: str, what: str, flags: Sequence[str]) -> None:
        with secrets(self.cache) as shown:
            command = ["bud", "--isolation", "chroot", "--network", "host", "--layers", "--pull-never"]
            self._run([*command, *shown, *flags, "--file", str(context / recipe), str(context)], what)

    def _holds(self, image: str) -> bool:
        with self._command(["inspect", "--type", "image", image]) as command:
            done = subprocess.run(command, capture_output=True, timeout=_QUICK_S, check=False)
        return done.returncode == 0

    def _base(self, base: str) -> None:
        """Fetch the base image, or make one with that name."""
        began = time.monotonic()
        try:
            self._run(["pull", "--quiet", base], "base", timeout_s=_PULL_S)
        except BuildError:
            self.say(f"{base}: cannot be pulled, so debootstrap makes it")
            self._made(base)
        self.say(f"{base}: {time.monotonic() - began:.0f} s")

    def _made(self, base: str) -> None:
        release = re.search(r"debian:(\d+)", base)
        codename = _CODENAMES.get(release[1]) if release else None
        if codename is None:
            raise BuildError(f"{base} cannot be pulled, and debootstrap knows no such release")
        archive = self.cache / f"base-{codename}.tar"
        if not archive.exists():
            self._bootstrap(codename, archive)
        with tempfile.TemporaryDirectory(prefix="run-", dir=self.cache) as folder:
            os.link(archive, Path(folder, "base.tar"))
            Path(folder, "Dockerfile").write_text('FROM scratch\nADD base.tar /\nCMD ["bash"]\n')
            self._run(["bud", "--isolation", "chroot", "--tag", base, folder], "base")

    def _bootstrap(self, codename: str, archive: Path) -> None:
        log = self.cache / "base.log"
        with tempfile.TemporaryDirectory(prefix="run-", dir=self.cache) as scratch:
            root = Path(scratch, "root")
            bootstrap(codename, root, log, self.say)
            (root / "etc/dpkg/dpkg.cfg.d/base").write_text(_DPKG)
            (root / "etc/apt/apt.conf.d/base").write_text(_APT)
            for name in _EMPTIED:
                shutil.rmtree(root / name)
                (root / name).mkdir()
            written = Path(scratch, "base.tar")
            follow(["tar", "-C", str(root), "-cf", str(written), "."], "base.tar", log, self.say)
            written.rename(archive)

    def _run(self, arguments: Sequence[str], what: str, timeout_s: float | None = None) -> None:
        with self._command(arguments) as command:
            follow(command, what, self.cache / f"{what}.log", self.say, timeout_s=timeout_s)

    @contextmanager
    def _command(self, arguments: Sequence[str]) -> Iterator[list[str]]:
        """The whole command line, in its own mount namespace with its own run folder."""
        driver = "overlay" if overlays(self.cache) else "vfs"
        with tempfile.TemporaryDirectory(prefix="run-", dir=self.cache, ignore_cleanup_errors=True) as run:
            own = [self.program, "--root", str(self.cache / f"storage-{driver}"), "--runroot", run]
            aside = ["sh", "-c", _ASIDE, "sh", run]
            yield ends_with_us([*aside, *own, "--storage-driver", driver, *arguments])


@dataclass(frozen=True, slots=True)
class Engine:
    """docker or podman."""

    program: str
    cache: Path
    say: Say

    @property
    def name(self) -> str:
        return Path(self.program).name

    def prepare(self, base: str, context: Path, recipe: str) -> None:
        """Nothing to do: an engine pulls base images, and caches its steps."""

    def build(self, context: Path, recipe: str, image: str, arguments: dict[str, str]) -> None:
        with secrets(self.cache) as shown:
            command = [self.program, "build", "--tag", image, *shown, *_arguments(arguments)]
            self._run([*command, "--file", str(context / recipe), str(context)], recipe)

    def save(self, recipe: str, image: str, archive: Path) -> None:
        self._run([self.program, "save", "--output", str(archive), image], recipe)

    def _run(self, command: Sequence[str], recipe: str) -> None:
        plain = {"DOCKER_BUILDKIT": "1", "BUILDKIT_PROGRESS": "plain"}
        what = Path(recipe).stem
        follow(command, what, self.cache / f"{what}.log", self.say, environment=plain)


def _arguments(arguments: dict[str, str]) -> list[str]:
    return [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]

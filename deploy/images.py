"""Builds the images of agent and collector from their recipes, once for each state of their inputs.

    make images                build missing images; print paths, sizes and seconds
    deploy/images.py --json    the same; prints {"agent": PATH, "collector": PATH, "seconds": .., "built": ..}

`$XDG_CACHE_HOME/hyperscout/images` holds the archives by the digest of all inputs. `docker load`, `podman
load` and `ctr -n k8s.io images import` read them. NAME.cdx.json beside each lists its contents (sbom.py).
image_builders.py chooses the builder.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
import time
import tomllib
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import sbom
from image_builders import Builder, NoBuilderError, find
from image_steps import BuildError

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("agent", "collector")
REGISTRY = "docker.io/hyperscout"
_OWN = (".dockerignore",)  # not the build scripts, which have no influence on the content of an image
_KEEP_ARCHIVES = 4
_KEEP_STORAGE_BYTES = 4 << 30
_OLD_S = 24 * 3600  # a younger folder may belong to a build that waits
_CHUNK = 1 << 20
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Images:
    """Paths of the archives. `seconds`: duration of this call; `built`: whether it built an image."""

    agent: Path
    collector: Path
    seconds: float
    built: bool


def cache() -> Path:
    """The folder of the archives and of the builders' storage."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hyperscout" / "images"


def inputs() -> list[Path]:
    """Every file that an image depends on: the files that .dockerignore admits, and the recipes."""
    wanted = [ROOT / name for name in _OWN] + [ROOT / _recipe(name) for name in NAMES]
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        for path in ROOT.glob(line[1:]) if line.startswith("!") else ():
            wanted += path.rglob("*") if path.is_dir() else [path]
    return sorted(p for p in set(wanted) if p.is_file() and "__pycache__" not in p.parts)


def snapshot(folder: Path) -> str:
    """Copy the inputs, so that an edit does not change them during a build. Returns their digest."""
    digest = hashlib.sha256()
    for path in inputs():
        name, body = str(path.relative_to(ROOT)), path.read_bytes()
        digest.update(f"{name}\0{len(body)}\0".encode() + body)
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(body)
        os.utime(copy, (0, 0))  # builders compare times of files
    return digest.hexdigest()[:16]


def version() -> str:
    """The project's version."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def images(say: Say) -> Images:
    """Find the archives, or build them.

    Raises:
        NoBuilderError: they do not exist, and this machine has no builder.
        BuildError: a build failed.
    """
    began = time.monotonic()
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="context-", dir=cache()) as folder:
        context = Path(folder, "context")
        wanted = cache() / snapshot(context)
        built = not _complete(wanted)
        if built:
            with _alone(say):
                if not _complete(wanted):  # another process may have built it while this one waited
                    _build(context, wanted, say)
    os.utime(wanted)
    return Images(wanted / "agent.tar", wanted / "collector.tar", time.monotonic() - began, built)


def _complete(folder: Path) -> bool:
    archives = [folder / f"{name}.tar" for name in NAMES]
    return all(path.is_file() for archive in archives for path in (archive, sbom.path_of(archive)))


def _build(context: Path, wanted: Path, say: Say) -> None:
    for log in cache().glob("*.log"):
        log.unlink()
    builder = find(cache(), say)
    say(f"building with {builder.name} into {wanted}")
    [base] = re.findall(r"^ARG BASE=(\S+)", (context / _recipe("agent")).read_text(), re.MULTILINE)
    builder.prepare(base, context, _recipe("agent"))
    scratch = Path(tempfile.mkdtemp(prefix="new-", dir=cache()))
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda name: _one(builder, context, name, scratch), NAMES))
        if wanted.exists():
            shutil.rmtree(wanted)
        scratch.rename(wanted)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _tidy(wanted)


def _one(builder: Builder, context: Path, name: str, folder: Path) -> None:
    image = f"{REGISTRY}/{name}:{version()}"
    builder.build(context, _recipe(name), image, {"VERSION": version()})
    archive = folder / f"{name}.tar"
    builder.save(_recipe(name), image, archive)
    sbom.path_of(archive).write_text(sbom.document(archive))


def _tidy(newest: Path) -> None:
    """Bound the cache: keep the newest archives, and delete a builder's storage that is too large."""
    folders = [p for p in cache().iterdir() if re.fullmatch(r"[0-9a-f]{16}", p.name) and p != newest]
    for old in sorted(folders, key=lambda p: p.stat().st_mtime)[: 1 - _KEEP_ARCHIVES]:
        shutil.rmtree(old, ignore_errors=True)
    for storage in cache().glob("storage-*"):
        if sum(p.lstat().st_size for p in storage.rglob("*")) > _KEEP_STORAGE_BYTES:
            shutil.rmtree(storage, ignore_errors=True)


@contextmanager
def _alone(say: Say) -> Iterator[None]:
    """Allow one build at a time in this cache. The lock ends with its process."""
    with (cache() / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is under way: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        left = [*cache().glob("new-*"), *cache().glob("run-*")]  # from builds that were killed
        left += [p for p in cache().glob("context-*") if time.time() - p.stat().st_mtime > _OLD_S]
        for folder in left:
            shutil.rmtree(folder, ignore_errors=True)
        yield


def sizes(archive: Path) -> tuple[int, int]:
    """Bytes of an image's layers: (uncompressed, compressed by gzip as in registries)."""
    plain = packed = 0
    with tarfile.open(archive) as tar:
        for member in tar:
            body = tar.extractfile(member) if member.isfile() and member.name.endswith(".tar") else None
            if body is None:
                continue
            squeeze = zlib.compressobj(6, wbits=31)
            while chunk := body.read(_CHUNK):
                plain += len(chunk)
                packed += len(squeeze.compress(chunk))
            packed += len(squeeze.flush())
    return plain, packed


def _recipe(name: str) -> str:
    return f"deploy/docker/{name}.Dockerfile"


def _say(text: str) -> None:
    print(f"images: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run `make images`."""
    if list(arguments) not in ([], ["--json"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        found = images(_say)
    except (NoBuilderError, BuildError) as error:
        _say(str(error))
        return 1
    if arguments:
        print(json.dumps(asdict(found), default=str))
        return 0
    archives = (found.agent, found.collector)
    if found.built:
        with ThreadPoolExecutor() as pool:
            for path, (plain, packed) in zip(archives, pool.map(sizes, archives), strict=True):
                print(f"{path}: {plain / 1e6:.0f} MB, {packed / 1e6:.1f} MB compressed")
    else:
        print(*archives, sep="\n")
    print(*map(sbom.path_of, archives), sep="\n")
    _say(f"{'built' if found.built else 'found'} in {found.seconds:.1f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

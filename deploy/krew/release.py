"""Packs the kubectl plugin for krew, and writes its manifest.

    deploy/krew/release.py pack --lib LIB --platform linux/amd64 DIR      an archive in DIR
    deploy/krew/release.py manifest --uri URL --homepage URL ARCHIVE...   the manifest, on standard output
    deploy/krew/release.py check MANIFEST ARCHIVE...                      compare them

LIB has a folder for each Python version, `cp311`, `cp312`, with all packages:

    pip install --target LIB/cp311 --python-version 3.11 --platform manylinux_2_28_x86_64 \\
      --only-binary=:all: --require-hashes -r deploy/docker/collector.requirements.txt
    pip install --target LIB/cp311 --no-deps dist/hyperscout-*.whl

Format: krew's plugin manifest, v1alpha2. The same files give the same archive, byte for byte.
"""

import argparse
import gzip
import hashlib
import io
import re
import sys
import tarfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
LICENSE = HERE.parents[1] / "LICENSE"
TEMPLATE = HERE / "hyperscout.yaml.in"
LAUNCHER = HERE / "launch.py"
PROGRAM, COMPLETION = "kubectl-hyperscout", "kubectl_complete-hyperscout"
PLATFORMS = ("linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64")
_NAME = re.compile(rf"{PROGRAM}_(?P<version>[0-9A-Za-z.+-]+)_(?P<os>[a-z]+)_(?P<arch>[a-z0-9]+)\.tar\.gz")
_LIBRARY = re.compile(r"cp3[0-9]{1,2}")
_MAX_SHORT = 50  # characters of the short description, by krew's own rule


class KrewError(ValueError):
    """The plugin cannot be packed, or archives do not fit together; the message says why."""


def pack(lib: Path, platform: str, folder: Path, version: str) -> Path:
    """The archive of one platform. Raises KrewError."""
    libraries = sorted(x for x in lib.iterdir() if _LIBRARY.fullmatch(x.name))
    if not libraries:
        raise KrewError(f"{lib}: contains no folder such as cp311")
    for library in libraries:
        if not (library / "hyperscout_cli" / "main.py").is_file():
            raise KrewError(f"{library}: contains no hyperscout: install its wheel there")
    files = {PROGRAM: LAUNCHER, COMPLETION: LAUNCHER, "LICENSE": LICENSE}
    for path in sorted(p for library in libraries for p in library.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            files[f"lib/{path.relative_to(lib)}"] = path
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{PROGRAM}_{version}_{platform.replace('/', '_')}.tar.gz"
    with (
        archive.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, path in files.items():
            entry = tarfile.TarInfo(name)
            data = path.read_bytes()
            entry.size = len(data)
            entry.mode = 0o755 if name in {PROGRAM, COMPLETION} else 0o644
            tar.addfile(entry, io.BytesIO(data))
    return archive


def manifest(archives: Sequence[Path], uri: str, homepage: str) -> str:
    """The manifest for these archives, which lie below `uri`. Raises KrewError."""
    versions = {_named(archive)["version"] for archive in archives}
    if len(versions) != 1:
        raise KrewError(
            f"archives of one version are expected, not of {', '.join(sorted(versions)) or 'none'}"
        )
    platforms = "".join(_platform(archive, uri) for archive in sorted(archives, key=lambda x: x.name))
    text = TEMPLATE.read_text("utf-8")
    text = text[text.index("apiVersion:") :]
    for name, value in (
        ("VERSION", versions.pop()),
        ("HOMEPAGE", homepage),
        ("PLATFORMS", platforms.rstrip("\n")),
    ):
        text = text.replace(f"@{name}@", value)
    return text


def _platform(archive: Path, uri: str) -> str:
    match = _named(archive)
    return (
        "  - selector:\n"
        "      matchLabels:\n"
        f"        os: {match['os']}\n"
        f"        arch: {match['arch']}\n"
        f"    uri: {uri.rstrip('/')}/{archive.name}\n"
        f"    sha256: {_digest(archive)}\n"
        f"    bin: {PROGRAM}\n"
        "    files:\n"
        '    - from: "*"\n'
        "      to: .\n"
    )


def problems(text: str, archives: Sequence[Path]) -> Iterator[str]:
    """What krew would reject, and differences between the manifest and the archives."""
    found: Any = yaml.safe_load(text)
    spec = found["spec"]
    if found["apiVersion"] != "krew.googlecontainertools.github.com/v1alpha2" or found["kind"] != "Plugin":
        yield "not a plugin manifest of v1alpha2"
    if found["metadata"]["name"] != PROGRAM.removeprefix("kubectl-"):
        yield f"the plugin is called {found['metadata']['name']!r}"
    if not re.fullmatch(r"v[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.-]+)?", str(spec["version"])):
        yield f"version {spec['version']!r} is not semantic with a v before it"
    if len(spec["shortDescription"]) > _MAX_SHORT:
        yield f"the short description is over {_MAX_SHORT} characters"
    if "@" in text:
        yield "a placeholder is left"
    by_name = {platform["uri"].rpartition("/")[2]: platform for platform in spec["platforms"]}
    for archive in archives:
        platform = by_name.pop(archive.name, None)
        if platform is None:
            yield f"{archive.name}: not in the manifest"
            continue
        if not platform["uri"].startswith("https://"):
            yield f"{archive.name}: its address is not https"
        if platform["sha256"] != _digest(archive):
            yield f"{archive.name}: the digest differs from the manifest's"
        yield from _packed_wrong(archive, platform["bin"])
    yield from (f"{name}: no such archive was given" for name in by_name)


def _packed_wrong(archive: Path, program: str) -> Iterator[str]:
    with tarfile.open(archive) as tar:
        entries = {entry.name: entry for entry in tar.getmembers()}
    for name in (program, COMPLETION):
        if name not in entries or not entries[name].mode & 0o111:
            yield f"{archive.name}: {name} is missing or not executable"
    if "LICENSE" not in entries:
        yield f"{archive.name}: LICENSE is missing"  # krew-index requires it
    if any(name.startswith(("/", "../")) or "/../" in name for name in entries):
        yield f"{archive.name}: a path that leaves its folder"


def _named(archive: Path) -> re.Match[str]:
    match = _NAME.fullmatch(archive.name)
    if match is None:
        raise KrewError(f"{archive}: expected a name such as {PROGRAM}_0.1.0_linux_amd64.tar.gz")
    return match


def _digest(archive: Path) -> str:
    with archive.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    which = parser.add_subparsers(dest="what", required=True)
    packing = which.add_parser("pack")
    packing.add_argument("--lib", type=Path, required=True)
    packing.add_argument("--platform", choices=PLATFORMS, required=True)
    packing.add_argument("folder", type=Path)
    writing = which.add_parser("manifest")
    writing.add_argument("--uri", required=True)
    writing.add_argument("--homepage", required=True)
    writing.add_argument("archives", type=Path, nargs="+")
    checking = which.add_parser("check")
    checking.add_argument("manifest", type=Path)
    checking.add_argument("archives", type=Path, nargs="+")
    given = parser.parse_args(arguments)
    try:
        if given.what == "pack":
            print(pack(given.lib, given.platform, given.folder, metadata.version("hyperscout")))
        elif given.what == "manifest":
            print(manifest(given.archives, given.uri, given.homepage), end="")
        else:
            wrong = list(problems(given.manifest.read_text("utf-8"), given.archives))
            print("\n".join(wrong) or "no problem found")
            return 1 if wrong else 0
    except (KrewError, OSError) as error:
        print(f"release.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

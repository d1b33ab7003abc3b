"""The wheel and the source archive, as `make dist` builds them: their files, and a wheel of the archive."""

import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest
from support.real import ROOT

STATIC = "hyperscout_collector/serve/rest/static"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", folder]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


def files_of_wheel(folder: Path) -> dict[str, bytes]:
    [wheel] = folder.glob("hyperscout-*.whl")
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def below(folder: Path) -> set[str]:
    """The files below a folder of the checkout."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_both_have_the_map_if_it_is_built_and_what_is_below_share(dist: Path) -> None:
    assets, share = below(ROOT / "collector" / STATIC), below(ROOT / "deploy/share")
    assert any(name.startswith("man/") for name in share)
    [archive] = dist.glob("hyperscout-*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {f"collector/{STATIC}/{name}" for name in assets} == {n for n in names if f"/{STATIC}/" in n}
    assert {f"deploy/share/{name}" for name in share} == {n for n in names if n.startswith("deploy/share/")}
    wheel = files_of_wheel(dist)
    assert {f"{STATIC}/{name}" for name in assets} == {n for n in wheel if n.startswith(f"{STATIC}/")}
    assert share == {n.partition(".data/data/share/")[2] for n in wheel if ".data/data/share/" in n}


def test_the_source_archive_has_no_file_of_this_machine(dist: Path) -> None:
    [archive] = dist.glob("hyperscout-*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert not [n for n in names if n.startswith((".venv", "dist/", "build/")) or "__pycache__" in n]


def test_the_source_archive_builds_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    [archive] = dist.glob("hyperscout-*.tar.gz")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps"]
    command = [*pip, "--no-index", "--no-build-isolation", "-w", tmp_path, archive]
    subprocess.run(command, check=True, capture_output=True)
    assert files_of_wheel(tmp_path) == files_of_wheel(dist)

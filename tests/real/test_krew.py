"""The kubectl plugin: packed, described for krew, unpacked as krew does it, and run by the real kubectl."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from kube import assets
from support.modules import module_of
from support.placement_service import FakePlacementService, serving_placements
from support.real import ROOT, require_real
from support.topologies import two_leaves
from support.topology_service import FakeTopologyService

URI, HOME = "https://downloads.example/v9.9.9", "https://hyperscout.example"
VERSION = "9.9.9"


@pytest.fixture(scope="module")
def krew() -> ModuleType:
    return module_of(ROOT / "deploy/krew/release.py", "krew")


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `pip install --target` makes it, without the libraries, which this environment has."""
    folder = tmp_path_factory.mktemp("lib")
    mine = folder / "cp{}{}".format(*sys.version_info)
    packages = [
        *ROOT.glob("agent/hyperscout_*"),
        *ROOT.glob("collector/hyperscout_*"),
        ROOT / "proto/hyperscout",
    ]
    for package in packages:
        ignore = shutil.ignore_patterns("__pycache__", "static")
        shutil.copytree(package, mine / package.name, ignore=ignore)
    info = mine / f"hyperscout-{VERSION}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: hyperscout\nVersion: {VERSION}\n")
    return folder


@pytest.fixture(scope="module")
def archive(krew: ModuleType, lib: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = krew.pack(lib, "linux/amd64", tmp_path_factory.mktemp("dist"), VERSION)
    return found


def test_the_template_lacks_only_what_a_release_knows(krew: ModuleType) -> None:
    text = krew.TEMPLATE.read_text()
    assert set(re.findall("@([A-Z]+)@", text)) == {"VERSION", "HOMEPAGE", "PLATFORMS"}


def test_a_manifest_says_what_krew_wants_to_know(krew: ModuleType, archive: Path, tmp_path: Path) -> None:
    other = tmp_path / archive.name.replace("linux_amd64", "darwin_arm64")
    shutil.copy(archive, other)
    text = krew.manifest([archive, other], URI, HOME)
    assert list(krew.problems(text, [archive, other])) == []
    spec = yaml.safe_load(text)["spec"]
    assert spec["version"] == f"v{VERSION}"
    darwin, linux = spec["platforms"]
    assert linux["selector"] == {"matchLabels": {"os": "linux", "arch": "amd64"}}
    assert linux["uri"] == f"{URI}/{archive.name}"
    assert darwin["selector"]["matchLabels"] == {"os": "darwin", "arch": "arm64"}


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (f"v{VERSION}", "9", "not semantic"),
        ("name: hyperscout", "name: scout", "is called 'scout'"),
        ("sha256: ", "sha256: 0", "the digest differs"),
        ("bin: kubectl-hyperscout", "bin: hyperscout", "hyperscout is missing"),
        ("https://downloads", "http://downloads", "not https"),
        ("linux_amd64", "linux_arm64", "not in the manifest"),
        (HOME, "@HOMEPAGE@", "a placeholder is left"),
        ("v1alpha2", "v1", "not a plugin manifest"),
        ("Show how", "Show, with " + 50 * "x", "over 50 characters"),
    ],
)
def test_what_does_not_go_together_is_said(
    krew: ModuleType, archive: Path, before: str, after: str, problem: str
) -> None:
    text = krew.manifest([archive], URI, HOME)
    assert before in text
    assert problem in "\n".join(krew.problems(text.replace(before, after), [archive]))


def test_the_same_files_give_the_same_archive(
    krew: ModuleType, lib: Path, archive: Path, tmp_path: Path
) -> None:
    again = krew.pack(lib, "linux/amd64", tmp_path, VERSION)
    assert again.read_bytes() == archive.read_bytes()
    with tarfile.open(archive) as tar:
        assert all(entry.mtime == 0 and entry.uid == 0 for entry in tar.getmembers())


def test_what_cannot_be_packed_is_said(krew: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(krew.KrewError, match="no folder such as cp311"):
        krew.pack(tmp_path, "linux/amd64", tmp_path, VERSION)
    (tmp_path / "cp311").mkdir()
    with pytest.raises(krew.KrewError, match="contains no hyperscout"):
        krew.pack(tmp_path, "linux/amd64", tmp_path, VERSION)
    with pytest.raises(krew.KrewError, match="expected a name such as"):
        krew.manifest([tmp_path / "x.tar.gz"], URI, HOME)


@pytest.fixture
def installed(krew: ModuleType, archive: Path, tmp_path: Path) -> Path:
    """What krew leaves: the files of the archive in its store, and a link to `bin`. Returns a PATH folder."""
    spec = yaml.safe_load(krew.manifest([archive], URI, HOME))["spec"]
    store = tmp_path / "store" / "hyperscout" / spec["version"]
    with tarfile.open(archive) as tar:
        tar.extractall(store, filter="data")
    links = tmp_path / "bin"
    links.mkdir()
    (links / "kubectl-hyperscout").symlink_to(store / spec["platforms"][0]["bin"])
    (links / "python3").symlink_to(sys.executable)
    return links


@pytest.fixture
def collector() -> Iterator[str]:
    with serving_placements(FakePlacementService(), FakeTopologyService(topology=two_leaves())) as served:
        yield served.address


def kubectl(links: Path, collector: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = assets.find("kubectl")
    assert program is not None
    (links / "kubectl").unlink(missing_ok=True)
    (links / "kubectl").symlink_to(program)
    environment = {"PATH": str(links), "HYPERSCOUT_COLLECTOR": collector, "HOME": str(links.parent)}
    # The plugin's own Python is a link to that of this environment, which it would not recognise by itself.
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))
    command = [str(links / "kubectl"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_kubectl_finds_the_plugin_and_runs_it(installed: Path, collector: str) -> None:
    require_real("kubernetes")
    ran = kubectl(installed, collector, "hyperscout", "version")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith(f"hyperscout {VERSION}\n")
    assert "Usage: kubectl hyperscout get" in kubectl(installed, collector, "hyperscout", "get", "-h").stdout
    ran = kubectl(installed, collector, "hyperscout", "get", "hn", "-o", "name")
    assert ran.stdout.splitlines() == ["hypernode/leaf-a", "hypernode/leaf-b", "hypernode/core"]
    assert kubectl(installed, collector, "hyperscout", "get", "hn", "nope").returncode == 1


def test_kubectl_completes_the_plugin(installed: Path, collector: str) -> None:
    require_real("kubernetes")
    store = (installed / "kubectl-hyperscout").resolve().parent
    (installed / "kubectl_complete-hyperscout").symlink_to(store / "kubectl_complete-hyperscout")

    # A collector that does not answer within a second completes nothing.
    give_up_s = time.monotonic() + 90
    lines = [":4"]
    while lines == [":4"] and time.monotonic() < give_up_s:
        lines = kubectl(
            installed, collector, "__complete", "hyperscout", "get", "hn", "lea"
        ).stdout.splitlines()
    assert lines == ["leaf-a", "leaf-b", ":4"]


def test_a_python_without_libraries_is_told_which_it_needs(installed: Path) -> None:
    store = (installed / "kubectl-hyperscout").resolve().parent
    (mine,) = (store / "lib").iterdir()
    mine.rename(mine.with_name("cp399"))
    command = [sys.executable, str(installed / "kubectl-hyperscout"), "version"]
    ran = subprocess.run(command, env={"PATH": "/nope"}, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "needs Python 3.99, and this is" in ran.stderr

"""The Debian packages on a fresh Debian: their contents, commands, services, upgrade and removal."""

import configparser
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.debian_root import DebianRoot, debian_root, loopback
from support.modules import module_of
from support.real import ROOT, go_without, require_real, tool
from support.waiting import eventually

require_real("debian-root", "netns")

packages: Any = module_of(ROOT / "deploy" / "packages.py", "deploy_packages")

try:
    packages.check_python(packages.python_version())
except packages.PackagesError as error:
    go_without({"the locked Python": str(error)})

PARTS = [package.part for package in packages.PACKAGES]
SETTINGS = [f"etc/hyperscout/{part}.yaml" for part in PARTS]


@pytest.fixture(scope="module")
def debs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The packages by part, built from the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return {package.part: packages.build(folder, package) for package in packages.PACKAGES}


@pytest.fixture(scope="module")
def machine(debs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebianRoot]:
    """Debian with what the packages depend on; in /debs the packages and a sweep."""
    depends = ", ".join(field(deb, "Depends") for deb in debs.values())
    names = {name.split()[0] for name in depends.split(", ")}
    with debian_root(tmp_path_factory.mktemp("packages"), *sorted(names)) as root:
        (root.folder / "debs").mkdir()
        for file in (*debs.values(), ROOT / "examples/fabric.txt"):
            shutil.copy(file, root.folder / "debs")
        yield root


@pytest.fixture(scope="module")
def before(machine: DebianRoot) -> set[str]:
    """Everything that is on the machine before the packages."""
    return machine.paths()


@pytest.fixture(scope="module")
def installed(machine: DebianRoot, before: set[str]) -> DebianRoot:
    machine.shell("dpkg -i /debs/*.deb")
    return machine


def field(deb: Path, name: str) -> str:
    done = subprocess.run(["dpkg-deb", "--field", deb, name], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def unit(root: DebianRoot, part: str) -> Mapping[str, str]:
    """The section Service of a unit."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(root.folder / f"usr/lib/systemd/system/hyperscout-{part}.service")
    return parser["Service"]


def start(root: DebianRoot, part: str, network: Path, log: Path) -> "subprocess.Popen[bytes]":
    """Start a service as its unit says: user, folders, capabilities, a root that is read-only elsewhere."""
    service = unit(root, part)
    assert service["ProtectSystem"] == "strict"
    user = service["User"]
    ids = root.shell(f"id -u {user}; id -g {user}").split()
    writable = ["tmp"]  # PrivateTmp
    for key, base in (("StateDirectory", "var/lib"), ("RuntimeDirectory", "run")):
        if key in service:
            writable.append(f"{base}/{service[key]}")
            folder = root.folder / writable[-1]
            folder.mkdir(exist_ok=True)
            folder.chmod(int(service.get(f"{key}Mode", "0755"), 8))
            os.chown(folder, *map(int, ids))
    kept = [f"+{name.lower().removeprefix('cap_')}" for name in service["CapabilityBoundingSet"].split()]
    assert service.get("AmbientCapabilities", "") == service["CapabilityBoundingSet"]
    rights = ",".join(["-all", *kept])
    words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--no-new-privs"]
    words += [f"--bounding-set={rights}", f"--inh-caps={rights}", f"--ambient-caps={rights}"]
    words += ["--pdeathsig", "KILL"]  # which the kernel forgets when the user changes
    return root.start(log, *words, *shlex.split(service["ExecStart"]), network=network, writable=writable)


@pytest.fixture
def network() -> Iterator[Path]:
    with loopback() as path:
        yield path


@pytest.fixture
def services(installed: DebianRoot, network: Path, tmp_path: Path) -> Iterator[Mapping[str, Path]]:
    """The log of each part, while both run."""
    logs = {part: tmp_path / part for part in PARTS}
    running = [start(installed, part, network, log) for part, log in logs.items()]
    try:
        yield logs
    finally:
        for process in running:
            process.kill()
            process.wait()
        for part in PARTS:  # as systemd does when a service ends
            if folder := unit(installed, part).get("RuntimeDirectory"):
                shutil.rmtree(installed.folder / "run" / folder)


@pytest.mark.parametrize("part", PARTS)
class TestContents:
    def test_a_package_brings_no_path_of_the_machine_that_builds(
        self, installed: DebianRoot, part: str
    ) -> None:
        home = installed.folder / f"opt/hyperscout-{part}"
        texts = [path for path in home.rglob("*") if path.suffix not in (".so", ".pyc") and path.is_file()]
        assert len(texts) > 100
        for path in texts:
            for word in (b"hyperscout-deb-", os.fsencode(ROOT), os.fsencode(Path.home()) + b"/."):
                assert word not in path.read_bytes(), path

    def test_everything_is_compiled_and_looks_at_no_source(self, installed: DebianRoot, part: str) -> None:
        home = installed.folder / f"opt/hyperscout-{part}/lib"
        own = list(home.rglob("hyperscout_*/**/*.py"))
        assert len(own) > 100
        for path in own:
            [cached] = (path.parent / "__pycache__").glob(f"{path.stem}.cpython-*.pyc")
            assert cached.read_bytes()[4:8] == b"\x01\0\0\0", cached

    def test_all_belongs_to_root_and_is_readable(self, installed: DebianRoot, part: str) -> None:
        found = installed.shell(
            f"find /opt/hyperscout-{part} /etc/hyperscout ! -type l -printf '%u %m %p\\n'"
        )
        for line in found.splitlines():
            user, mode, path = line.split(maxsplit=2)
            assert (user, int(mode, 8) & 0o4, int(mode, 8) & 0o6022) == ("root", 4, 0), path

    def test_systemd_finds_no_fault_in_the_unit(self, installed: DebianRoot, part: str) -> None:
        require_real("systemd")
        verify = [str(tool("systemd-analyze")), "verify", "--man=no", "--recursive-errors=no"]
        verify += [f"--root={installed.folder}", f"hyperscout-{part}.service"]
        done = subprocess.run(verify, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")

    def test_the_service_has_the_rights_that_the_page_names(self, installed: DebianRoot, part: str) -> None:
        service = unit(installed, part)
        assert service["User"] == {"agent": "hyperscout-agent", "collector": "hyperscout"}[part]
        assert service["CapabilityBoundingSet"] == {"agent": "CAP_NET_RAW", "collector": ""}[part]
        assert service["NoNewPrivileges"] == "yes"

    def test_the_service_is_not_enabled(self, installed: DebianRoot, part: str) -> None:
        assert not list((installed.folder / "etc/systemd").rglob(f"hyperscout-{part}.service"))


def test_the_commands_run(installed: DebianRoot) -> None:
    assert installed.shell("hyperscout --version") == f"hyperscout {version()}\n"
    assert "leaf-p01-01" in installed.shell("hyperscout infer --ibnetdiscover /debs/fabric.txt -o slurm-tree")
    assert "Usage: hyperscout agent" in installed.shell("hyperscout-agent agent --help")
    assert installed.shell("hyperscout-agent --version") == f"hyperscout {version()}\n"


def version() -> str:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "version"], cwd=ROOT, capture_output=True, check=True
    )
    return done.stdout.decode().strip()


def test_the_agent_has_no_numpy(installed: DebianRoot) -> None:
    done = installed.run("/opt/hyperscout-agent/bin/python3", "-c", "import numpy")
    assert "No module named 'numpy'" in done.stderr
    done = installed.run("hyperscout-agent", "infer", "--ibnetdiscover", "/dev/null")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "needs the Python package 'numpy'" in done.stderr


def test_pages_and_completion_are_where_debian_looks(installed: DebianRoot) -> None:
    share = installed.folder / "usr/share"
    pages = {path.name for path in (ROOT / "deploy/share/man/man1").iterdir()}
    assert {path.name.removesuffix(".gz") for path in (share / "man/man1").glob("hyperscout*.1.gz")} == pages
    for name in (
        "bash-completion/completions/hyperscout",
        "zsh/vendor-completions/_hyperscout",
        "fish/vendor_completions.d/hyperscout.fish",
    ):
        assert (share / name).is_file(), name


async def test_the_agent_reports_to_the_collector(
    installed: DebianRoot, network: Path, services: Mapping[str, Path]
) -> None:
    def connected() -> bool:
        done = installed.run("hyperscout", "status", "-o", "json", network=network)
        if done.returncode:
            return False
        return [agent["connected"] for agent in json.loads(done.stdout)["agents"]] == [True]

    try:
        await eventually(connected, "the agent in the collector's status")
    except AssertionError as error:
        logs = "\n".join(f"{part}: {log.read_text()}" for part, log in services.items())
        raise AssertionError(f"{error}\n{logs}") from None
    doctor = installed.run("hyperscout-agent", "doctor", "-o", "json", network=network)
    checks = {check["check"]: check for check in json.loads(doctor.stdout)["checks"]}
    assert "/etc/hyperscout/agent.yaml" in checks["settings"]["why"]
    assert checks["collector 127.0.0.1:50051"]["result"] == "ok"


def test_removal_keeps_settings_and_data_and_purge_only_the_users(
    machine: DebianRoot, before: set[str]
) -> None:
    """The last test: it removes the packages. Edited settings outlast an upgrade to the same version, too."""
    machine.shell("dpkg -i /debs/*.deb")
    for name in SETTINGS:
        with (machine.folder / name).open("a") as file:
            file.write("# edited\n")
    data = machine.folder / "var/lib/hyperscout/evidence.db"
    data.parent.mkdir(exist_ok=True)
    data.touch()
    for command in ("dpkg -i /debs/*.deb", "dpkg -r hyperscout-agent hyperscout-collector"):
        machine.shell(command)
        assert all((machine.folder / name).read_text().endswith("# edited\n") for name in SETTINGS)
        assert data.exists()
    assert not list(machine.folder.glob("opt/hyperscout*"))
    machine.shell("dpkg -P hyperscout-agent hyperscout-collector")
    assert {path for path in machine.paths() - before if not path.endswith("shadow-")} == set()
    users = {line.partition(":")[0] for line in (machine.folder / "etc/passwd").read_text().splitlines()}
    assert users >= {package.user for package in packages.PACKAGES}

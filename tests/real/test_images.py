"""The images, built for real: what is in them, and that what they are for starts in them as in a pod."""

import asyncio
import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from urllib.parse import unquote

import pytest
from hyperscout_agent.lldp.link import ListenerLink
from hyperscout_formats.lldp.frame import dissect
from lab.images import Images, images
from support import lldp_frames, small_fabric
from support.image_root import NET_RAW, USER, ImageRoot
from support.real import ROOT, require_real
from support.waiting import TIMEOUT_S

require_real("images", "root")

VERSION = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
_PACKAGES = "opt/hyperscout/lib/python3.11/site-packages"


@pytest.fixture(scope="module")
def built() -> Images:
    return images(print)


def unpacked(archive: Path, folder: Path) -> Iterator[ImageRoot]:
    yield ImageRoot.unpacked(archive, folder)
    shutil.rmtree(folder)  # a hundred megabytes, which pytest would keep


@pytest.fixture(scope="module")
def agent(built: Images, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageRoot]:
    yield from unpacked(built.agent, tmp_path_factory.mktemp("agent"))


@pytest.fixture(scope="module")
def collector(built: Images, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageRoot]:
    yield from unpacked(built.collector, tmp_path_factory.mktemp("collector"))


@pytest.fixture(params=["agent", "collector"])
def either(request: pytest.FixtureRequest) -> ImageRoot:
    root = request.getfixturevalue(request.param)
    assert isinstance(root, ImageRoot)
    return root


def test_they_are_built_once(built: Images) -> None:
    said: list[str] = []
    again = images(said.append)
    assert (again.agent, again.collector, again.built) == (built.agent, built.collector, False)
    assert said == []


class TestImage:
    def test_it_has_the_name_that_nodes_ask_for(self, either: ImageRoot) -> None:
        assert VERSION is not None
        name = either.archive.stem
        assert either.manifest["RepoTags"] == [f"docker.io/hyperscout/{name}:{VERSION[1]}"]
        assert either.config["config"]["Labels"]["org.opencontainers.image.version"] == VERSION[1]

    def test_it_starts_as_an_unprivileged_user(self, either: ImageRoot) -> None:
        config = either.config["config"]
        assert config["User"] == f"{USER}:{USER}"
        assert [*config["Entrypoint"], *config["Cmd"]] == ["hyperscout", either.archive.stem]

    def test_it_has_no_program_but_its_own(self, either: ImageRoot) -> None:
        """No shell, no package manager, no pip."""
        programs = {p.name for p in either.folder.rglob("*bin/*")}
        wanted = {"python", "python3", "python3.11", "hyperscout"}
        wanted |= {"kubectl-hyperscout", "kubectl_complete-hyperscout"}  # the same program by other names
        tools = {"ibnetdiscover", "ibqueryerrors"} if either.archive.stem == "agent" else set()
        assert programs == wanted | tools
        for path in either.files():
            if path.parent.name not in ("bin", "sbin") and os.access(either.folder / path, os.X_OK):
                head = (either.folder / path).read_bytes()[:4]
                assert head != b"\x7fELF" or ".so" in path.name, path

    def test_what_builds_and_tests_stays_behind(self, either: ImageRoot) -> None:
        names = {path.name for path in either.folder.rglob("*")}
        assert not names & {"pip", "ensurepip", "setuptools", "distutils", "hatchling", "tests", "apt"}
        assert not [name for name in names if re.search(r"\.(a|c|h|pyx|pyi|log)$", name)]

    def test_nothing_of_the_machine_that_builds_is_in_it(self, either: ImageRoot) -> None:
        names = {str(path) for path in either.files()}
        assert not [n for n in names if n.startswith(("root", "home", "src", "build", "wheel", "run", "tmp"))]
        assert not names & {"etc/pip.conf", "etc/apt/apt.conf.d/99secret", "etc/resolv.conf", "etc/hostname"}
        said = json.dumps(either.config)
        for name in ("PIP_", "_proxy", f"{'index'}-url", str(Path.home()), str(ROOT)):
            assert name not in said

    def test_the_interpreter_writes_nothing_and_looks_at_no_source(self, either: ImageRoot) -> None:
        for path in either.files("*.py"):
            cached = path.parent / "__pycache__" / f"{path.stem}.cpython-311.pyc"
            head = (either.folder / cached).read_bytes()[:8]
            assert head[4:] == b"\x01\0\0\0", f"{cached}: not one that holds unchecked"
        assert "co_filename='/opt/hyperscout/lib" in either.python(
            "import hyperscout_cli.main as m; print(f'co_filename={m.main.__code__.co_filename!r}')"
        )

    def test_all_libraries_are_there(self, either: ImageRoot) -> None:
        linked = [f"/{p}" for p in either.files() if p.suffix == ".so" or p.parent.name in ("bin", "sbin")]
        linked = [name for name in linked if (either.folder / name[1:]).read_bytes()[:4] == b"\x7fELF"]
        assert len(linked) > 20
        [linker] = (either.folder / "lib64").glob("ld-linux-*")
        done = either.run("python3", "-c", LINKED, f"/lib64/{linker.name}", *linked)
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()

    def test_scanners_find_what_came_from_debian(self, either: ImageRoot) -> None:
        packages = {
            path.name: (either.folder / path).read_text()
            for path in either.files()
            if "status.d" in path.parts
        }
        assert {"libc6", "libssl3", "zlib1g", "python3.11-minimal"} <= set(packages)
        for name, text in packages.items():
            assert re.search(r"^Version: \S", text, re.MULTILINE), name
            assert (either.folder / "usr/share/doc" / name / "copyright").is_file(), name
        assert "Debian" in (either.folder / "etc/os-release").read_text()

    def test_its_contents_are_listed(self, either: ImageRoot) -> None:
        found = json.loads(either.archive.with_suffix(".cdx.json").read_text())
        purls = [unquote(component["purl"]).partition("?")[0] for component in found["components"]]
        named = {purl.split("/", 1)[1].partition("@")[0] for purl in purls}
        debian = {path.name for path in either.files() if "status.d" in path.parts}
        assert {f"debian/{package}" for package in debian} <= named
        python = {path.parent.name for path in either.files() if path.name == "METADATA"}
        assert len([purl for purl in purls if purl.startswith("pkg:pypi/")]) == len(python) > 10
        assert {"grpcio", "hyperscout"} <= named

    def test_the_root_is_read_only_and_no_loss(self, either: ImageRoot) -> None:
        write = "import pathlib, sys; pathlib.Path(sys.argv[1], 'x').write_text('')"
        assert b"Read-only file system" in either.run("python3", "-c", write, "/var/lib/hyperscout").stderr
        assert either.run("python3", "-c", write, "/tmp").returncode == 0
        assert either.python("import os; print(os.getuid(), os.getgid(), os.getgroups())").split()[0] == str(
            USER
        )

    def test_the_map_is_where_it_is_served(self, either: ImageRoot) -> None:
        """All of it in the collector's image, once it is built; nothing of it in the agent's."""
        built = ROOT / "collector" / "hyperscout_collector" / "serve" / "rest" / "static"
        wanted = {str(p.relative_to(built)) for p in built.rglob("*") if p.is_file()}
        room = f"{_PACKAGES}/hyperscout_collector/serve/rest/static"
        found = {str(path.relative_to(room)) for path in either.files() if path.is_relative_to(room)}
        assert found == (wanted if either.archive.stem == "collector" else set())

    @pytest.mark.parametrize("words", ["--help", "{name} --help", "version"])
    def test_the_command_starts(self, either: ImageRoot, words: str) -> None:
        done = either.run("hyperscout", *words.format(name=either.archive.stem).split())
        assert done.returncode == 0, done.stderr.decode()
        assert b"hyperscout" in done.stdout


def test_the_agents_image_says_what_is_wrong(agent: ImageRoot) -> None:
    """Where nothing is: no collector, no port, no settings file."""
    done = agent.run("hyperscout", "doctor", "-o", "json")
    assert done.returncode == 3, done.stderr.decode()
    found = {check["check"]: check["result"] for check in json.loads(done.stdout)["checks"]}
    assert (found["settings"], found["ibnetdiscover"]) == ("ok", "ok")
    assert found["collector 127.0.0.1:50051"] == "failed"


LINKED = """
import subprocess, sys
linker, *linked = sys.argv[1:]
for path in linked:
    done = subprocess.run([linker, "--list", path], capture_output=True, text=True)
    if done.returncode or "not found" in done.stdout:
        sys.exit(f"{path}: {done.stdout}{done.stderr}")
"""
EVERY = """
import importlib, pkgutil, sys
for room in sys.argv[1:]:
    for module in pkgutil.walk_packages(importlib.import_module(room).__path__, room + "."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                print(error.name)
"""
ENCRYPTS = """
import pysnmp.hlapi.v3arch.asyncio
from pysnmp.proto import rfc1902
from pysnmp.proto.secmod.rfc3826.priv.aes import Aes
key, salt = (rfc1902.OctetString(letter * size) for letter, size in ((b"k", 16), (b"s", 8)))
secret, salt = Aes().encrypt_data(key, (1, 2, salt), b"hello")
print(bytes(Aes().decrypt_data(key, (1, 2, salt), secret)).decode())
"""


class TestAgent:
    def test_every_module_of_it_finds_what_it_imports(self, agent: ImageRoot) -> None:
        done = agent.run(
            "python3",
            "-c",
            EVERY,
            "hyperscout_agent",
            "hyperscout_formats",
            "hyperscout_runtime",
            "hyperscout",
        )
        assert done.returncode == 0, done.stderr.decode()
        assert set(done.stdout.decode().split()) <= {"numpy"}  # readers of whole fabrics: the collector's

    def test_the_process_that_stays_holds_neither_scapy_nor_numpy(self, agent: ImageRoot) -> None:
        done = agent.run(
            "python3", "-X", "importtime", "-c", "import hyperscout_agent.main, hyperscout_cli.manage.agent"
        )
        assert done.returncode == 0, done.stderr.decode()
        modules = {line.split("|")[-1].strip().split(".")[0] for line in done.stderr.decode().splitlines()}
        assert {"hyperscout_agent", "grpc", "pydantic"} <= modules
        assert not modules & {"scapy", "numpy", "sqlite3", "kubernetes", "hyperscout_sim"}
        assert not modules & {"pysnmp", "cryptography"}, "an agent that asks no switches does not load it"

    def test_an_agent_that_asks_switches_can_encrypt(self, agent: ImageRoot) -> None:
        """SNMPv3 takes ciphers from a package that pysnmp asks for when it needs them, and not before."""
        assert agent.python(ENCRYPTS).split() == ["hello"]

    def test_the_process_beside_it_takes_frames_apart(self, agent: ImageRoot) -> None:
        frame = lldp_frames.unit(
            *lldp_frames.MANDATORY,
            lldp_frames.tlv(5, b"leaf-a1"),
            lldp_frames.capabilities(0x14, 0x14),
            lldp_frames.address(1, bytes([10, 0, 0, 1])),
        )
        done = agent.run(
            "python3", "-m", "hyperscout_agent.lldp.dissector", stdin=frame.hex().encode() + b"\n"
        )
        assert done.returncode == 0, done.stderr.decode()
        neighbour = json.loads(done.stdout)["neighbour"]
        assert neighbour == json.loads(json.dumps(asdict(dissect(frame))))
        assert neighbour["system_name"] == "leaf-a1"

    def test_the_user_holds_no_capability_and_the_listener_one(self, agent: ImageRoot) -> None:
        look = "print(next(l.split()[1] for l in open('/proc/self/status') if l.startswith('CapEff')))"
        assert int(agent.python(look), 16) == 0
        assert int(agent.python(look, listener=True), 16) == 1 << NET_RAW
        knock = "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)"
        assert b"PermissionError" in agent.run("python3", "-c", knock).stderr
        agent.python(knock, listener=True)

    async def test_the_listener_starts_and_reaches_the_agent(self, agent: ImageRoot) -> None:
        path, came, process = agent.tmp / "lldp.sock", asyncio.Event(), None
        link = ListenerLink(path, lambda heard: None, came.set)
        task = asyncio.create_task(link.run())
        command = agent.command(
            *(
                "python3",
                "-m",
                "hyperscout_agent.lldp.listener",
                "--socket",
                "/tmp/lldp.sock",
                "--ports",
                "^lo$",
            ),
            listener=True,
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while not path.exists():
                    await asyncio.sleep(0)
                os.chown(path, USER, USER)
                path.chmod(0o660)
                process = await asyncio.create_subprocess_exec(*command, env=agent.environment)
                await came.wait()
            assert link.connected == 1
        finally:
            if process is not None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def test_ibnetdiscover_starts(self, agent: ImageRoot) -> None:
        assert b"BUILD VERSION" in agent.run("ibnetdiscover", "--version").stderr
        done = agent.run("ibnetdiscover")
        assert b"can't open MAD port" in done.stderr + done.stdout


class TestCollector:
    def test_every_module_of_it_finds_what_it_imports(self, collector: ImageRoot) -> None:
        rooms = (
            *("hyperscout_cli", "hyperscout_collector", "hyperscout_formats", "hyperscout_gates"),
            *("hyperscout_inference", "hyperscout_kubernetes", "hyperscout_mqtt", "hyperscout_placer"),
            *("hyperscout_publish", "hyperscout_runtime", "hyperscout_topology", "kubernetes.aio.config"),
        )
        done = collector.run("python3", "-c", EVERY, *rooms)
        assert done.returncode == 0, done.stderr.decode()
        assert set(done.stdout.decode().split()) <= {"scapy"}  # the agent's

    def test_it_infers(self, collector: ImageRoot) -> None:
        done = collector.run(
            *("hyperscout", "infer", "--ibnetdiscover", "-", "-o", "json"), stdin=small_fabric.TEXT
        )
        assert done.returncode == 0, done.stderr.decode()
        assert len(json.loads(done.stdout)["switches"]) == 2

"""Shell completion with live names: what is asked, kept and bounded; and real shells, where they are."""

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest
from hyperscout_cli.main import cli
from hyperscout_cli.remote.live_names import _MAX_FILES, Cache, names, within
from hyperscout_topology.objects import to_json
from support.command_line import CommandLine
from support.placement_service import FakePlacementService, placed, serving_placements
from support.topologies import two_leaves
from support.topology_service import FakeTopologyService
from support.waiting import TIMEOUT_S

# kubectl and shells find programs by name.
# The time that a person waits for names is no time for a busy machine.
_KEPT_S = 600.0  # longer than any machine takes for two commands
_SHIM = """\
#!{python}
import sys
from hyperscout_cli.remote import live_names
from {module} import main
live_names.DEADLINE_S = 60.0
live_names.KEPT_S = {kept_s}
sys.argv[0] = {name!r}
sys.exit(main())
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with the entry points, as pip makes them."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, module in (
        ("hyperscout", "hyperscout_cli.main"),
        ("kubectl-hyperscout", "hyperscout_cli.main"),
        ("kubectl_complete-hyperscout", "hyperscout_cli.manage.kubectl_completion"),
    ):
        (folder / name).write_text(
            _SHIM.format(python=sys.executable, module=module, name=name, kept_s=_KEPT_S)
        )
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def service() -> Iterator[FakeTopologyService]:
    """A collector with gangs, and a generation that is held."""
    topology = FakeTopologyService(topology=two_leaves())
    topology.status.generation = 7
    topology.status.held.generation = 8
    gangs = FakePlacementService(held={"train-7": placed("train-7", "n01")})
    with serving_placements(gangs, topology) as served:
        topology.address = served.address
        yield topology


def environment(programs: Path, address: str, **more: str) -> dict[str, str]:
    found = {"PATH": f"{programs}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(programs.parent / "cache")}
    return found | {"HYPERSCOUT_COLLECTOR": address} | more


def completed(line: str, where: Mapping[str, str]) -> list[str]:
    """As click's bash script calls back; the last word of the line is being typed."""
    words = line.split(" ")
    asked = {
        "_HYPERSCOUT_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    ran = subprocess.run(
        ["hyperscout"], env={**where, **asked}, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return [x.removeprefix("plain,") for x in ran.stdout.splitlines() if x]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("hyperscout get nodes n0", ["n01", "n02", "n03", "n04", "n09"]),
        ("hyperscout get hn ", ["core", "leaf-a", "leaf-b"]),
        ("hyperscout get sw s", ["spine"]),
        ("hyperscout get findings n01 n02", ["n02"]),
        ("hyperscout get anomalies l", ["leaf-a", "leaf-b"]),
        ("hyperscout get links sp", ["spine"]),
        ("hyperscout get what ", []),
        ("hyperscout describe hypernode c", ["core"]),
        ("hyperscout explain n01 n04", ["n04"]),
        ("hyperscout approve ", ["8", "7"]),
        ("hyperscout place --avoid n03", ["n03"]),
        ("hyperscout place --avoid le", ["leaf-a", "leaf-b"]),
        ("hyperscout placements release t", ["train-7"]),
        ("hyperscout hostfile t", ["train-7"]),
        ("hyperscout placements repair train-7 --failed n01", ["n01"]),
        ("hyperscout explain-placement --gang ", ["train-7"]),
        ("hyperscout measure nccl n09", ["n09"]),
        ("hyperscout doctor n09", ["n09"]),
        ("hyperscout get hn -o y", ["yaml"]),
        ("hyperscout status --color ", ["auto", "always", "never"]),
    ],
)
def test_names_are_those_of_the_collector(
    programs: Path, service: FakeTopologyService, line: str, expected: list[str]
) -> None:
    assert completed(line, environment(programs, service.address)) == expected


def test_the_collector_may_be_named_on_the_line_and_a_file_in_its_place(
    programs: Path, service: FakeTopologyService, tmp_path: Path
) -> None:
    where = environment(programs, "127.0.0.1:1")
    assert completed(f"hyperscout get hn --collector {service.address} c", where) == ["core"]
    assert completed(f"hyperscout --collector {service.address} get hn c", where) == ["core"]
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(to_json(two_leaves())))
    assert completed(f"hyperscout get hn --topology {saved} c", where) == ["core"]
    assert completed("hyperscout get hn --topology - c", where) == []
    assert completed(f"hyperscout get hn --topology {programs / 'hyperscout'} c", where) == []


def test_what_is_wrong_is_not_said(programs: Path, service: FakeTopologyService) -> None:
    with socket.socket() as mute:  # it listens, and never says a word
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        silent = f"127.0.0.1:{mute.getsockname()[1]}"
        assert completed("hyperscout get nodes n", environment(programs, silent)) == []
    assert completed("hyperscout get nodes n", environment(programs, "no such host:x")) == []
    assert completed("hyperscout get nodes n", environment(programs, "")) == []
    where = environment(programs, service.address)
    assert completed("hyperscout get nodes n", where | {"HYPERSCOUT_TLS_CA": "/nope"}) == []
    assert completed("hyperscout get nodes n", where | {"XDG_CACHE_HOME": "/proc/nope"})[0] == "n01"
    assert completed('hyperscout get nodes "n', where)[0] == "n01"


def test_an_answer_is_kept_for_some_seconds_and_for_the_user_alone(
    programs: Path, service: FakeTopologyService
) -> None:
    where = environment(programs, service.address)
    assert completed("hyperscout get hn c", where) == ["core"]
    service.topology = type(service.topology)(9)
    asked = len(service.asked_links)
    assert completed("hyperscout get hn c", where) == ["core"]
    assert len(service.asked_links) == asked
    (kept,) = (programs.parent / "cache" / "hyperscout" / "completion").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    os.utime(kept, (time.time() - _KEPT_S - 1,) * 2)
    assert completed("hyperscout get hn c", where) == []
    os.utime(kept, (time.time(),) * 2)
    assert completed("hyperscout get hn c", where | {"HYPERSCOUT_TOKEN": "of another"}) == []


def test_the_cache_is_bounded_and_believes_little(tmp_path: Path) -> None:
    now_s = [1000.0]

    def cache(whose: str) -> Cache:
        return Cache(tmp_path / "c", whose, lambda: now_s[0])

    for i in range(40):
        cache(f"{i}").write({"nodes": ["n"]})
        now_s[0] += 0.1
    assert len(list((tmp_path / "c").iterdir())) == _MAX_FILES
    assert cache("39").read() == {"nodes": ["n"]}
    cache("39").write({"nodes": ["n" * (5 << 20)]})  # too large to keep
    assert cache("39").read() == {"nodes": ["n"]}
    file = cache("39")._file
    for content in (b"", b"\xff", b"[", b"[1]", b"[" * 100_000):
        file.write_bytes(content)
        os.utime(file, (now_s[0],) * 2)
        assert cache("39").read() is None
    file.write_bytes(b'{"nodes": ["a", 1], "other": 7}')
    os.utime(file, (now_s[0],) * 2)
    assert cache("39").read() == {"nodes": ["a"]}
    now_s[0] -= 60  # from the future: the clock was set back
    assert cache("39").read() is None
    now_s[0] += 60
    assert cache("39").read() == {"nodes": ["a"]}
    if os.geteuid() == 0:
        os.chown(file, 12345, -1)  # another user's
        assert cache("39").read() is None
        os.chown(file, 0, -1)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert cache("39").read() is None


def test_only_words_reach_the_shell() -> None:
    code = (
        "import os; from hyperscout_cli.main import quietly\n"
        "quietly(lambda: (print('word'), os.write(2, b'noise'), [][1]))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "word\n", "")


def test_a_completion_waits_no_longer_than_the_deadline() -> None:
    gate = threading.Event()

    def hang() -> dict[str, list[str]]:
        gate.wait(60)
        return {}

    assert within(0.01, hang) is None
    gate.set()

    def fail() -> dict[str, list[str]]:
        raise RuntimeError

    assert within(10, fail) is None
    assert within(10, lambda: {"nodes": ["a"]}) == {"nodes": ["a"]}


def test_names_that_need_quotes_are_left_out(tmp_path: Path) -> None:
    saved = tmp_path / "t.json"
    saved.write_text(json.dumps(to_json(two_leaves())).replace("n02", "n 02; rm").replace("n03", "n$(x)"))
    ctx = click.Context(cli)
    ctx.params = {"topology": str(saved)}
    found = [x.value for x in names("nodes")(ctx, click.Argument(["x"]), "n")]
    assert found == ["n01", "n04", "n09"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["get", "hypernodes", "lea"], ["leaf-a", "leaf-b", ":4"]),
        (["app"], ["approve\tPublish a held generation.", ":4"]),
        (["get", "no", ""], ["n01", "n02", "n03", "n04", "n09", ":4"]),
        (["get", "no", "--topology", ""], [":0"]),
        ([], None),
    ],
)
def test_kubectl_is_answered_in_its_own_words(
    programs: Path, service: FakeTopologyService, words: list[str], expected: list[str] | None
) -> None:
    where = environment(programs, service.address)
    ran = subprocess.run(
        ["kubectl_complete-hyperscout", *words], env=where, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    if expected is not None:
        assert ran.stdout.splitlines() == expected


# A shell's own functions, driven as its line editor drives them.
_BASH = """
source <(hyperscout completion bash)
complete -p hyperscout
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_hyperscout_completion hyperscout
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def test_a_real_bash_completes(programs: Path, service: FakeTopologyService) -> None:
    script = _BASH.format(words="hyperscout get nodes n0")
    where = environment(programs, service.address)
    bash = shutil.which("bash")
    assert bash is not None
    ran = subprocess.run([bash, "-c", script], env=where, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    first, *rest = ran.stdout.splitlines()
    assert first.endswith("hyperscout")
    assert rest == ["n01", "n02", "n03", "n04", "n09"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_scripts_are_well_formed(
    run: CommandLine, programs: Path, service: FakeTopologyService, shell: str, tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text(run("completion", shell).out)
    if program := shutil.which(shell):
        subprocess.run([program, "-n", script], check=True)
    asked = {"_HYPERSCOUT_COMPLETE": f"{shell}_complete", "COMP_WORDS": "hyperscout get no n09"}
    asked["COMP_CWORD"] = "n09" if shell == "fish" else "3"
    where = environment(programs, service.address, **asked)
    ran = subprocess.run(["hyperscout"], env=where, capture_output=True, text=True, check=True)
    assert "n09" in ran.stdout
    assert ran.stderr == ""

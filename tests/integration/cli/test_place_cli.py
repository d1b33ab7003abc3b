"""`hyperscout infer` and `hyperscout place` as processes, joined by a pipe: what comes out is judged by the
topology's own JSON, with nothing of the placer."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hyperscout_sim.fabric.racks import racks
from hyperscout_sim.fabric.shapes import clos3, rail_optimised
from hyperscout_sim.readings.nvidia_smi_text import nvidia_smi_text
from hyperscout_sim.readings.sweep_text import sweep_text, sweep_texts
from support.real import SHARED_FABRICS, require_real
from support.waiting import TIMEOUT_S

SWEEP, NODE_MAP = SHARED_FABRICS / "psmn-x5.ibnetdiscover", SHARED_FABRICS / "psmn-x5.nodemap"


@pytest.fixture
def real_fabric() -> None:
    require_real("recordings")


def run(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """`hyperscout` in a process of its own."""
    command = [sys.executable, "-m", "hyperscout_cli.main", *map(str, arguments)]
    ran = subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=TIMEOUT_S)
    assert b"Traceback" not in ran.stderr
    return ran


def inferred(*arguments: object) -> bytes:
    """What `infer -o json` prints."""
    ran = run("infer", *arguments, "-o", "json")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Three pods of four leaves of eight hosts, inferred."""
    path = tmp_path_factory.mktemp("place") / "fabric.txt"
    path.write_bytes(sweep_text(clos3(3, 4, 8, 2, 2)))
    return inferred("--ibnetdiscover", path)


def placed(topology: bytes, *flags: object) -> dict[str, Any]:
    ran = run("place", "--topology", "-", *flags, "-o", "json", stdin=topology)
    assert ran.returncode == 0, ran.stderr
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def judged(topology: bytes, answer: Mapping[str, Any], free: Mapping[str, int]) -> list[str]:
    """Nodes by rank, once everything that the answer says of them was found true."""
    hypernodes = json.loads(topology)["hypernodes"]
    assert answer["placed"] is True
    assert [x["rank"] for x in answer["assignments"]] == list(range(len(answer["assignments"])))
    nodes = [x["node"] for x in answer["assignments"]]
    used = set(nodes)
    assert all(n <= free.get(node, 0) for node, n in Counter(nodes).items())
    assert answer["nodes"] == len(used)
    holders = [h for h in hypernodes if used <= set(h["nodes"])]
    lowest = min(holders, key=lambda h: h["tier"], default=None)
    assert (answer["tier"], answer["hypernode"]) == (
        (lowest["tier"], lowest["name"]) if lowest else (None, None)
    )
    for tier in {h["tier"] for h in hypernodes}:
        touched = [h for h in hypernodes if h["tier"] == tier and used & set(h["nodes"])]
        assert answer["domains"][str(tier)] == len(touched)
    return nodes


def leaf_of(topology: bytes) -> dict[str, str]:
    hypernodes = json.loads(topology)["hypernodes"]
    return {node: h["name"] for h in hypernodes if h["tier"] == 1 for node in h["nodes"]}


def one_each(topology: bytes) -> dict[str, int]:
    return dict.fromkeys(leaf_of(topology), 1)


@pytest.mark.parametrize(
    ("workers", "tier", "leaves"), [(1, 1, 1), (8, 1, 1), (9, 2, 2), (32, 2, 4), (33, 3, 5), (96, 3, 12)]
)
def test_the_lowest_tier_and_the_fewest_leaves(fabric: bytes, workers: int, tier: int, leaves: int) -> None:
    answer = placed(fabric, "--workers", workers)
    nodes = judged(fabric, answer, one_each(fabric))
    assert (len(nodes), answer["tier"], answer["domains"]["1"]) == (workers, tier, leaves)
    assert answer["exact"] is True


def test_the_same_bytes_each_time(fabric: bytes) -> None:
    flags = ("place", "--topology", "-", "--workers", 40)
    for output in ("json", "table"):
        first = run(*flags, "-o", output, stdin=fabric)
        assert first.stdout
        assert run(*flags, "-o", output, stdin=fabric).stdout == first.stdout


def test_groups_are_runs_of_ranks_each_in_one_domain(fabric: bytes) -> None:
    flags = ("--group-size", 24, "--group-tier", "pod", "--group-size", 6, "--group-tier", "leaf")
    answer = placed(fabric, "--workers", 72, *flags)
    nodes = judged(fabric, answer, one_each(fabric))
    leaf = leaf_of(fabric)
    pods = {n: h["name"] for h in json.loads(fabric)["hypernodes"] if h["tier"] == 2 for n in h["nodes"]}
    assert all(len({leaf[n] for n in nodes[i : i + 6]}) == 1 for i in range(0, 72, 6))
    assert all(len({pods[n] for n in nodes[i : i + 24]}) == 1 for i in range(0, 72, 24))


def test_capacity_and_spread(fabric: bytes, tmp_path: Path) -> None:
    hosts = sorted(leaf_of(fabric))
    free = {host: i % 4 for i, host in enumerate(hosts)}
    path = tmp_path / "free.json"
    path.write_text(json.dumps(free))
    answer = placed(fabric, "--capacity", path, "--workers", 20, "--spread", "5:leaf")
    nodes = judged(fabric, answer, free)
    leaf = leaf_of(fabric)
    assert max(Counter(leaf[n] for n in nodes).values()) <= 5
    assert run("place", "--topology", "-", "--workers", 145, "--capacity", path, stdin=fabric).returncode == 3


def test_exit_codes(fabric: bytes, tmp_path: Path) -> None:
    def code(*flags: object) -> int:
        return run("place", "--topology", "-", *flags, stdin=fabric).returncode

    assert code("--workers", 96) == 0
    assert code("--workers", 97) == 3
    assert code("--workers", 97, "--mode", "soft") == 3
    assert code("--workers", 9, "--highest-tier-allowed", 1) == 3
    assert code("--workers", 9, "--highest-tier-allowed", 1, "--mode", "soft") == 0
    assert code("--workers", 9, "--group-size", 2, "--group-tier", 1) == 2
    assert code("--workers", 0) == 2
    assert code("--workers", 4, "--highest-tier-allowed", 7) == 0
    assert code("--workers", 4, "--even", 7) == 3
    assert code("--workers", 4, "--node-selector", "gpu=h100") == 3
    assert code("--workers", 4, "--highest-tier-allowed", "rack") == 2
    assert code("--workers", 4, "--avoid", "absent") == 2
    assert code("--workers", 4, "--capacity", tmp_path / "none.json") == 2
    ran = run("place", "--workers", 4, "--collector", "127.0.0.1:1")
    assert (ran.returncode, ran.stdout) == (1, b"")


def test_data_goes_to_stdout_and_everything_else_to_stderr(fabric: bytes) -> None:
    ran = run("place", "--topology", "-", "--workers", 97, stdin=fabric)
    assert (ran.returncode, ran.stdout) == (3, b"")
    assert ran.stderr.count(b"\n") == 1
    assert ran.stderr.strip()
    ran = run("place", "--topology", "-", "--workers", 97, "-o", "json", stdin=fabric)
    assert (ran.returncode, ran.stderr) == (3, b"")
    assert json.loads(ran.stdout)["reason"]
    assert run("place", "--topology", "-", "--workers", 96, stdin=fabric).stderr == b""


def test_a_failed_infer_in_front_of_the_pipe_is_no_traceback() -> None:
    ran = run("place", "--topology", "-", "--workers", 4)
    assert (ran.returncode, ran.stdout) == (2, b"")
    expected = b"what `hyperscout infer -o json` or `hyperscout tree -o json` prints"
    assert ran.stderr == b"error: stdin: empty: expected " + expected + b"\n"


@pytest.mark.usefixtures("real_fabric")
def test_a_real_fabric(tmp_path: Path) -> None:
    topology = inferred("--ibnetdiscover", SWEEP, "--node-map", NODE_MAP)
    free = one_each(topology)
    for workers, tier, leaves in ((24, 1, 1), (25, 2, 2), (89, 2, 6)):
        answer = placed(topology, "--workers", workers, "--include-unnamed")
        judged(topology, answer, free)
        assert (answer["tier"], answer["domains"]["1"]) == (tier, leaves)


def test_gpus_that_nvidia_smi_showed_are_counted(tmp_path: Path) -> None:
    cluster = racks(2, 2, trays=4, hgx=2)
    files = []
    for host, gpus in cluster.gpus.items():
        file = tmp_path / f"{host}.xml"
        file.write_bytes(nvidia_smi_text(gpus))
        files.append(file)
    sweeps = []
    for i, text in enumerate(sweep_texts(cluster.fabric)):
        sweeps.append(tmp_path / f"sweep-{i}.txt")
        sweeps[-1].write_bytes(text)
    topology = inferred("--ibnetdiscover", *sweeps, "--nvlink", *files)
    seen = {host: len(gpus) for host, gpus in cluster.gpus.items()}
    assert json.loads(topology)["devices"] == {host: {"nvidia.com/gpu": n} for host, n in seen.items()}
    (tmp_path / "nodes").write_text("\n".join(sorted(seen)[1:]))
    some = inferred("--ibnetdiscover", *sweeps, "--nvlink", *files, "--nodes", tmp_path / "nodes")
    assert list(json.loads(some)["devices"]) == sorted(seen)[1:]
    free = {host: n // 4 for host, n in seen.items()}
    answer = placed(topology, "--workers", 4, "--gpus-per-worker", 4)
    judged(topology, answer, free)
    assert answer["tier"] == 1
    answer = placed(topology, "--workers", sum(free.values()), "--gpus-per-worker", 4)
    judged(topology, answer, free)
    too_many = ("--workers", sum(free.values()) + 1, "--gpus-per-worker", 4)
    assert run("place", "--topology", "-", *too_many, stdin=topology).returncode == 3


def test_only_what_it_needs_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    sweep = tmp_path / "f.txt"
    sweep.write_bytes(sweep_text(rail_optimised(2, 4, 2, 2)))
    path.write_bytes(inferred("--ibnetdiscover", sweep))
    code = (
        "import sys; from hyperscout_cli.main import main\n"
        "assert main(['place', '--topology', sys.argv[1], '--workers', '5']) == 0\n"
        "unwanted = {'grpc', 'yaml', 'pydantic', 'asyncio', 'scapy', 'sqlite3', 'aiohttp', 'kubernetes'}\n"
        "sys.exit(', '.join(unwanted & sys.modules.keys()) or None)"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("command", "code"), [("agent --help", 0), ("agent --metrics-port x", 2), ("doctor --config nowhere", 3)]
)
def test_commands_of_the_agent_need_no_numpy(command: str, code: int) -> None:
    """The agent's image and package leave NumPy out."""
    script = (
        "import sys; sys.modules['numpy'] = None; import hyperscout_agent.main; "
        "from hyperscout_cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    command_line = [sys.executable, "-c", script, *command.split()]
    ran = subprocess.run(command_line, capture_output=True, text=True, check=False)
    assert ran.returncode == code, ran.stderr
    assert "numpy" not in ran.stderr.lower()


@pytest.mark.parametrize("command", ["place", "explain-placement", "placements"])
def test_help_waits_for_nothing(command: str) -> None:
    code = (
        "import sys; from hyperscout_cli.main import main; main(sys.argv[1:]); "
        "sys.exit(', '.join({'grpc', 'numpy', 'google', 'yaml', 'asyncio'} & sys.modules.keys()) or None)"
    )
    command_line = [sys.executable, "-c", code, command, "--help"]
    ran = subprocess.run(command_line, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")

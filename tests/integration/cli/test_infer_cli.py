"""`hyperscout infer` as a process: real and simulated files in, the right hierarchy out, clear endings."""

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from hyperscout_sim.fabric.opaque import even, opaque
from hyperscout_sim.fabric.racks import racks
from hyperscout_sim.fabric.shapes import clos3, multi_plane, rail_optimised
from hyperscout_sim.readings.lldp import lldpctl_json0, uplinks
from hyperscout_sim.readings.nvidia_smi_text import nvidia_smi_text
from hyperscout_sim.readings.sweep_text import sweep_text, sweep_texts
from support.infer_process import domains, inferred, run
from support.opaque_loop import all_pairs
from support.real import SHARED_FABRICS, require_real
from support.waiting import TIMEOUT_S

SWEEP, NODE_MAP = SHARED_FABRICS / "psmn-x5.ibnetdiscover", SHARED_FABRICS / "psmn-x5.nodemap"


@pytest.fixture
def real_fabric() -> None:
    require_real("recordings")


def hosts_by_leaf() -> set[frozenset[str]]:
    """Read off the file's own lines, without the project's code: the hosts in the block of each switch."""
    names = dict(re.findall(r"H-([0-9a-f]{16}) (\S+)", NODE_MAP.read_text()))
    leaves = []
    for block in SWEEP.read_text().split("\n\n"):
        if "switchguid=" in block:
            guids = re.findall(r'^\[\d+\]\t"H-([0-9a-f]{16})"', block, re.MULTILINE)
            leaves.append(frozenset(names.get(guid, guid) for guid in guids))
    return {leaf for leaf in leaves if len(leaf) > 2}


@pytest.mark.usefixtures("real_fabric")
def test_a_real_fabric_comes_out_as_it_is_wired() -> None:
    topology = inferred("--ibnetdiscover", SWEEP, "--node-map", NODE_MAP)
    assert domains(topology, 1) == hosts_by_leaf()
    assert len(domains(topology, 1)) == 6
    assert [h["tier"] for h in topology["hypernodes"]].count(2) == 1
    (whole,) = domains(topology, 2)
    assert whole == frozenset().union(*domains(topology, 1))
    assert len(whole) == 89
    assert max(h["tier"] for h in topology["hypernodes"]) == 2


@pytest.mark.usefixtures("real_fabric")
@pytest.mark.parametrize("output", ["tree", "json", "hypernodes", "slurm-tree", "slurm-block", "slurm-yaml"])
def test_every_output_of_a_real_fabric_names_every_host_and_repeats_to_the_byte(output: str) -> None:
    arguments = ("--ibnetdiscover", SWEEP, "--node-map", NODE_MAP, "-o", output)
    ran = run(*arguments)
    assert run(*arguments).stdout == ran.stdout
    text = re.sub(
        r"([A-Za-z0-9]+)\[([0-9,-]+)\]",
        lambda m: " ".join(
            m[1] + str(n)
            for part in m[2].split(",")
            for n in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)
        ),
        ran.stdout.decode(),
    )
    hosts = set(re.findall(r"^H-[0-9a-f]{16} (\S+)", NODE_MAP.read_text(), re.MULTILINE))
    present = {host for host in hosts if re.search(rf"(?<![\w-]){host}(?![\w-])", text)}
    wired = set().union(*hosts_by_leaf())
    assert present == hosts & wired
    if output in {"hypernodes", "slurm-yaml"}:
        assert list(yaml.safe_load_all(text))


def write(folder: Path, texts: Sequence[bytes]) -> list[Path]:
    paths = [folder / f"fabric-{i}.txt" for i in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text)
    return paths


def test_several_fabrics_after_one_flag_or_many_in_any_order(tmp_path: Path) -> None:
    fabric = multi_plane(4, 4, 4, 2)
    paths = write(tmp_path, sweep_texts(fabric))
    assert len(paths) > 1
    first = run("--ibnetdiscover", *paths, "-o", "json").stdout
    many = [word for path in reversed(paths) for word in ("--ibnetdiscover", path)]
    assert run(*many, "-o", "json").stdout == first
    assert domains(json.loads(first), 1) == set(map(frozenset, fabric.truth.tiers[0]))


def test_stdin_and_gzip(tmp_path: Path) -> None:
    (path,) = write(tmp_path, [sweep_text(clos3(2, 2, 4, 2, 2))])
    expected = run("--ibnetdiscover", path).stdout
    assert run("--ibnetdiscover", "-", stdin=path.read_bytes()).stdout == expected
    assert run("--ibnetdiscover", "-", stdin=gzip.compress(path.read_bytes())).stdout == expected


def test_lldp_files_are_named_after_their_nodes(tmp_path: Path) -> None:
    fabric = rail_optimised(2, 4, 4, 2)
    for host, links in uplinks(fabric).items():
        (tmp_path / f"{host}.json").write_bytes(lldpctl_json0(links))
    topology = inferred("--lldp", *sorted(tmp_path.glob("*.json")))
    assert domains(topology, 1) == set(map(frozenset, fabric.truth.tiers[0]))


def test_what_gpus_say_is_the_innermost_tier_with_cables_and_without(tmp_path: Path) -> None:
    cluster = racks(2, 2, trays=4, hgx=2)
    files = []
    for host, gpus in cluster.gpus.items():
        file = tmp_path / f"{host}.xml"
        file.write_bytes(nvidia_smi_text(gpus))
        files.append(file)
    sweeps = write(tmp_path, sweep_texts(cluster.fabric))
    both = inferred("--ibnetdiscover", *sweeps, "--nvlink", *files)
    assert [domains(both, tier) for tier in (1, 2, 3)] == [set(tier) for tier in cluster.tiers]
    assert {h["source"] for h in both["hypernodes"]} == {"nvlink", "wires"}
    alone = inferred("--nvlink", *files)
    assert domains(alone, 1) == set(cluster.nvlink)
    blocks = run("--nvlink", *files, "-o", "slurm-block").stdout.decode()
    assert " Nodes=uk-london1-dc01-row01-rack01-tray[01-04]\n" in blocks


def test_a_table_of_round_trips_is_enough(tmp_path: Path) -> None:
    fabric = opaque(even(3, 8), seed=1, noisy=0.0)
    pairs = all_pairs(fabric)
    ends = zip(pairs.a.tolist(), pairs.b.tolist(), pairs.rtt_us.tolist(), strict=True)
    rows = [f"{pairs.nodes[a]},{pairs.nodes[b]},{rtt_us:.3f}" for a, b, rtt_us in ends]
    half = len(rows) // 2
    for name, some in (("one.csv", rows[:half]), ("two.csv", rows[half:])):
        (tmp_path / name).write_text("node_a,node_b,rtt_us\n" + "\n".join(some) + "\n")
    topology = inferred("--latency", tmp_path / "one.csv", tmp_path / "two.csv")
    leaves = {
        frozenset(n for n, d in zip(fabric.names, fabric.domain[0], strict=True) if d == i) for i in range(3)
    }
    assert domains(topology, 1) == leaves
    assert domains(topology, 2) == {frozenset(fabric.names)}
    consistent = [c for c in topology["hypernodes"][0]["conditions"] if c["type"] == "Consistent"]
    assert consistent[0]["reason"] == "Inferred"
    assert run("--latency", "-", stdin=b"a,b,2.5\n").returncode == 0


def test_nodes_cuts_the_tree_down_and_changes_no_grouping(tmp_path: Path) -> None:
    fabric = clos3(2, 2, 4, 2, 2)
    (path,) = write(tmp_path, [sweep_text(fabric)])
    wanted = {host for i, host in enumerate(fabric.hosts) if i % 3 == 0}
    (tmp_path / "nodes").write_text("# the cluster\n" + "\n".join(sorted(wanted)) + "\nabsent-1\n")
    cut = inferred("--ibnetdiscover", path, "--nodes", tmp_path / "nodes")
    whole = inferred("--ibnetdiscover", path)
    for tier in (1, 2, 3):
        assert domains(cut, tier) == {d & wanted for d in domains(whole, tier)} - {frozenset()}
    assert cut["nodesWithoutEvidence"] == ["absent-1"]


def test_previous_names_live_on(tmp_path: Path) -> None:
    (path,) = write(tmp_path, [sweep_text(clos3(2, 2, 4, 2, 2))])
    previous = inferred("--ibnetdiscover", path)
    renamed = previous["hypernodes"][0]["name"]
    text = json.dumps(previous).replace(json.dumps(renamed), '"my-own-name"')
    (tmp_path / "previous.json").write_text(text)
    topology = inferred("--ibnetdiscover", path, "--previous", tmp_path / "previous.json")
    names = {h["name"] for h in topology["hypernodes"]}
    assert names == {h["name"] for h in previous["hypernodes"]} - {renamed} | {"my-own-name"}
    assert topology["generation"] == previous["generation"] + 1


def test_switches_alone_give_links_and_no_hypernodes(tmp_path: Path) -> None:
    full = sweep_text(clos3(2, 2, 4, 2, 2)).decode()
    blocks = [b for b in full.split("\n\n") if "switchguid=" in b]
    bare = "\n\n".join(re.sub(r'^\[\d+\]\t"H-.*\n?', "", b, flags=re.MULTILINE) for b in blocks)
    (path,) = write(tmp_path, [bare.encode()])
    topology = json.loads(run("--ibnetdiscover", path, "-o", "json", check=False).stdout)
    assert topology["hypernodes"] == []
    assert topology["links"]
    for output, empty in (("hypernodes", b""), ("slurm-tree", b""), ("slurm-block", b""), ("tree", b"")):
        ran = run("--ibnetdiscover", path, "-o", output, check=False)
        assert (ran.returncode, ran.stdout) == (3, empty)
        assert b"the tree is empty" in ran.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file or directory"),
        (b"", "empty: expected the output of `ibnetdiscover`"),
        (b"\n \n", "empty: expected the output of `ibnetdiscover`"),
        (os.urandom(2000), "ibnetdiscover"),
        (b"\x1f\x8b" + b"x" * 50, "damaged gzip"),
        (b"hello\nworld\n", "ibnetdiscover"),
    ],
)
def test_what_is_no_sweep_is_one_clear_line(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "dump"
    if content is not None:
        path.write_bytes(content)
    ran = run("--ibnetdiscover", path, check=False)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr.startswith(f"error: {path}".encode())
    assert words.encode() in ran.stderr
    assert ran.stderr.count(b"\n") == 1


@pytest.mark.parametrize("option", ["--lldp", "--nvlink", "--latency", "--node-map", "--nodes", "--previous"])
def test_every_other_file_s_trouble_names_the_file(tmp_path: Path, option: str) -> None:
    (path,) = write(tmp_path, [sweep_text(clos3(2, 2, 4, 2, 2))])
    bad = tmp_path / "bad"
    bad.write_bytes(b"\xff\xfe{]\0")
    ran = run("--ibnetdiscover", path, option, bad, check=False)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert str(bad).encode() in ran.stderr
    assert ran.stderr.count(b"\n") == 1


def test_garbled_lines_are_warnings_with_file_and_line(tmp_path: Path) -> None:
    text = sweep_text(clos3(2, 2, 4, 2, 2)).replace(b"\n[3]", b"\n[3x]", 1)
    (path,) = write(tmp_path, [text])
    ran = run("--ibnetdiscover", path)
    line = text[: text.index(b"[3x]")].count(b"\n") + 1
    assert f"warning: {path}:{line}: ".encode() in ran.stderr


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    (path,) = write(tmp_path, [sweep_text(rail_optimised(4, 32, 8, 4))])
    command = [
        sys.executable,
        "-m",
        "hyperscout_cli.main",
        "infer",
        "--ibnetdiscover",
        str(path),
        "-o",
        "json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1) == b"{"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    (path,) = write(tmp_path, [sweep_text(clos3(2, 2, 4, 2, 2))])
    command = [sys.executable, "-m", "hyperscout_cli.main", "infer", "--ibnetdiscover", str(path)]
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert ran.returncode == 1
    assert ran.stderr == b"error: No space left on device\n"


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_a_terminal_gets_colours_unless_it_says_no(
    tmp_path: Path, environment: dict[str, str], coloured: bool
) -> None:
    (path,) = write(tmp_path, [sweep_text(clos3(1, 1, 2, 1, 1))])
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "hyperscout_cli.main", "infer", "--ibnetdiscover", str(path)]
    base = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "TERM"}}
    subprocess.run(command, stdout=theirs, env=base | environment, check=True, timeout=TIMEOUT_S)
    os.close(theirs)
    assert (b"\x1b[" in os.read(ours, 65536)) is coloured
    os.close(ours)


def test_only_what_it_needs_is_imported(tmp_path: Path) -> None:
    (path,) = write(tmp_path, [sweep_text(clos3(2, 2, 4, 2, 2))])
    code = (
        "import sys; from hyperscout_cli.main import main\n"
        "assert main(['infer', '--ibnetdiscover', sys.argv[1], '-o', 'slurm-tree']) == 0\n"
        "unwanted = {'grpc', 'yaml', 'pydantic', 'asyncio', 'google', 'scapy', 'sqlite3', 'email', 'http'}\n"
        "sys.exit(', '.join(unwanted & sys.modules.keys()) or None)"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")

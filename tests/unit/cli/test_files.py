"""Files named on the command line: what cannot be read is one clear line that names the file."""

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hyperscout_cli.shared import files
from hyperscout_cli.shared.errors import CliError
from hyperscout_topology.objects import to_json
from support.command_line import CommandLine
from support.topologies import two_leaves


def test_gzip_is_unpacked_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"x" * 1000) + gzip.compress(b"y"))
    assert files.read_bytes(str(path)) == b"x" * 1000 + b"y"
    with pytest.raises(CliError, match="larger than 0 MiB"):
        files.read_bytes(str(path), limit=1000)
    path.write_bytes(gzip.compress(b"x" * 1000)[:-10])
    with pytest.raises(CliError, match=r"a\.gz: damaged gzip file"):
        files.read_bytes(str(path))


def test_a_head_is_read_and_not_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(8 << 30)
    assert files.read_head(str(path), 10) == bytes(10)
    path.write_bytes(gzip.compress(b"x" * 100)[:-8])
    assert files.read_head(str(path), 10) == b"x" * 10
    path.write_bytes(b"\x1f\x8bno gzip")
    with pytest.raises(CliError, match="a: damaged gzip file"):
        files.read_head(str(path), 10)


@pytest.mark.slow
def test_a_gzip_bomb_is_refused_before_it_takes_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(200 << 20)))
    tracemalloc.start()
    try:
        with pytest.raises(CliError, match=r"bomb\.gz: more than 100 times as large when unpacked"):
            files.read_bytes(str(path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20


@pytest.mark.parametrize(
    ("path", "words"),
    [("nope", "nope: No such file or directory: check the path"), (".", ".: Is a directory: name a file")],
)
def test_what_cannot_be_opened_is_named(path: str, words: str) -> None:
    with pytest.raises(CliError) as caught:
        files.read_bytes(path)
    assert str(caught.value.message) == words


@pytest.mark.parametrize(
    ("path", "name"),
    [("racks/gpu-01.json", "gpu-01"), ("gpu.a.b.json.gz", "gpu.a.b"), ("gpu-02", "gpu-02"), ("-", "stdin")],
)
def test_a_file_s_stem_is_the_node(path: str, name: str) -> None:
    assert files.node_name(path) == name


def _broken(change: Any) -> dict[str, Any]:
    data = to_json(two_leaves())
    change(data)
    return data


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"[1,\n2,,]", ":2: not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "expected an object"),
        (b"{}", "hypernodes: missing"),
        (b'{"hypernodes": [{"name": 3}]}', "hypernodes[0].name"),
        (
            b'{"hypernodes": [{"name": "leaf-\\ud800"}]}',
            "hypernodes[0].name: 'leaf-\\ud800' contains half of",
        ),
        (
            b'{"hypernodes": [{"name": "a", "tier": 1, "nodes": ["\\udc00"]}]}',
            "hypernodes[0].nodes[0]: '\\udc00'",
        ),
        (b'{"hypernodes": [], "devices": {"gpu-\\ud800": {}}}', "devices: 'gpu-\\ud800' contains half of"),
        (b'{"hypernodes": [], "devices": {"gpu-1": {"\\ud800": 1}}}', "devices: '\\ud800' contains half of"),
        (_broken(lambda d: d["hypernodes"].append(d["hypernodes"][0])), "same name"),
        (_broken(lambda d: d["hypernodes"][2]["children"].append("core")), "does not match"),
        (_broken(lambda d: d["hypernodes"][2]["children"].pop()), "does not match"),
        (_broken(lambda d: d["hypernodes"][0].update(tier=2)), "does not match"),
        (_broken(lambda d: d["hypernodes"].pop()), "does not match"),
    ],
)
def test_a_file_that_is_no_topology_is_refused(
    run: CommandLine, tmp_path: Path, content: bytes | dict[str, Any], words: str
) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    ran = run("tree", "--topology", path)
    assert (ran.code, ran.out) == (2, "")
    assert str(path) in ran.err
    assert words in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("apiVersion: topology.volcano.sh/v1alpha1\n", ":1: not JSON: Expecting value"),
        ('{"items": []}', ": not a saved topology: topology.hypernodes: missing"),
    ],
)
def test_the_error_about_previous_says_what_is_accepted(
    run: CommandLine, tmp_path: Path, content: str, found: str
) -> None:
    path, pairs = tmp_path / "former", tmp_path / "pairs.csv"
    path.write_text(content)
    pairs.write_text("node_a,node_b,rtt_us\na,b,5\n")
    ran = run("infer", "--latency", pairs, "--previous", path)
    accepted = "expected what `hyperscout infer -o json` or `hyperscout tree -o json` prints"
    assert (ran.code, ran.err) == (2, f"error: {path}{found}; {accepted}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("switch", "nope"),
            "error: no switch named 'nope': expected its name or id; `hyperscout get switches`",
        ),
        (
            ("anomaly", "nope"),
            "expected its kind, HyperNode, or a node or switch at an end; `hyperscout get anom",
        ),
        (("n01",), "cannot describe 'n01': expected KIND NAME with one of the kinds hypernodes, nodes, "),
        (("node",), "expected a name after 'node': `hyperscout get nodes` lists all"),
    ],
)
def test_describe_says_which_names_it_takes(
    run: CommandLine, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(to_json(two_leaves())))
    ran = run("describe", *arguments, "--topology", path)
    assert ran.code in (1, 2)
    assert words in ran.err


def test_saved_topologies_are_looked_at_offline(run: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(to_json(two_leaves())))
    assert run("tree", "--topology", path).code == 0
    assert run("get", "hn", "--topology", path, "-o", "name").out.count("\n") == 3
    assert "Links:" in run("describe", "node", "n01", "--topology", path).out
    assert run("diff", path, path).code == 0
    assert run("tree", "--topology", "-", stdin=path.read_bytes()).code == 0

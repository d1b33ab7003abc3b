"""What `infer` says of a tree that lacks something, and `--strict`."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import Cable, SimFabric
from hyperscout_sim.fabric.faults import Fault, plant
from hyperscout_sim.readings.sweep_text import sweep_text
from support.command_line import CommandLine
from support.real import ROOT

FABRIC = shapes.clos2(2, 4, 2)


def saved(fabric: SimFabric, folder: Path) -> Path:
    path = folder / "fabric.txt"
    path.write_bytes(sweep_text(fabric))
    return path


def joined_leaves() -> SimFabric:
    """Two leaves with one cable between them, and no spine."""
    leaves = [s for s in FABRIC.switches if s.level == 1]
    below = tuple(c for c in FABRIC.cables if c.a in FABRIC.node_map())
    between = Cable(leaves[0].guid, 40, leaves[1].guid, 40)
    return replace(FABRIC, switches=tuple(leaves), cables=(*below, between))


@pytest.mark.parametrize("strict", [False, True])
def test_a_whole_tree_has_no_gap(run: CommandLine, tmp_path: Path, strict: bool) -> None:
    ran = run("infer", "--ibnetdiscover", saved(FABRIC, tmp_path), *(["--strict"] if strict else []))
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize("cut", [b"\nSwitch", b"\nCa"])
def test_a_dump_that_is_cut_between_lines_is_incomplete(run: CommandLine, tmp_path: Path, cut: bytes) -> None:
    path = saved(FABRIC, tmp_path)
    text = path.read_bytes()
    path.write_bytes(text[: text.rindex(cut) + 1])
    ran = run("infer", "--ibnetdiscover", path)
    assert ran.err.startswith(f"warning: {path}: no block of ")
    assert "the dump is incomplete; run ibnetdiscover again\n" in ran.err


def test_a_node_map_of_other_devices_is_named(run: CommandLine, tmp_path: Path) -> None:
    known, unknown = FABRIC.adapters[0].guid, FABRIC.adapters[0].guid + 0xFFFF
    node_map = tmp_path / "guids.txt"
    node_map.write_text(f"{known:016x} {FABRIC.adapters[0].host}\nH-{unknown:016x} elsewhere\n")
    ran = run("infer", "--ibnetdiscover", saved(FABRIC, tmp_path), "--node-map", node_map)
    text = f"1 GUID of no device of the fabric, such as {unknown:016x} (elsewhere)"
    assert (ran.code, ran.err) == (0, f"warning: {node_map}: {text}\n")


def test_a_node_map_without_a_line_is_named(run: CommandLine, tmp_path: Path) -> None:
    node_map = tmp_path / "guids.txt"
    node_map.write_text("# none yet\n")
    ran = run("infer", "--ibnetdiscover", saved(FABRIC, tmp_path), "--node-map", node_map)
    assert (ran.code, ran.err) == (0, f"warning: {node_map}: no line: expected `<guid> <host>`\n")


def test_hosts_that_are_not_in_the_tree_are_named(run: CommandLine, tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.txt"
    nodes.write_text("\n".join([*FABRIC.hosts, "absent-1", "absent-2"]))
    command = ("infer", "--ibnetdiscover", saved(FABRIC, tmp_path), "--nodes", nodes)
    text = "warning: 2 hosts are not in the tree: absent-[1-2]: the files show no port of them\n"
    ran = run(*command)
    assert (ran.code, ran.err) == (0, text)
    assert run(*command, "--strict").code == 3


def test_a_host_on_a_spine_alone_is_in_the_tree_and_its_cable_is_named(
    run: CommandLine, tmp_path: Path
) -> None:
    spine = next(s for s in FABRIC.switches if s.level == 2)
    host = FABRIC.hosts[0]
    adapter = FABRIC.adapters_of()[host][0].guid
    cables = tuple(c._replace(b=spine.guid, b_port=30) if c.a == adapter else c for c in FABRIC.cables)
    ran = run("infer", "--ibnetdiscover", saved(replace(FABRIC, cables=cables), tmp_path), "--strict")
    assert ran.code == 0
    assert f"Miswired: {host} mlx5_0/p1 is plugged into {spine.name}/p30, a switch above" in ran.err
    assert f"      {host}\n" in ran.out


def test_leaves_side_by_side_are_no_tree(run: CommandLine, tmp_path: Path) -> None:
    ran = run("infer", "--ibnetdiscover", saved(joined_leaves(), tmp_path), "--strict")
    assert ran.code == 3
    assert "NotATree: the switches form no tree: 2 switches with hosts are joined side by side" in ran.err
    apart = replace(joined_leaves(), cables=joined_leaves().cables[:-1])
    assert run("infer", "--ibnetdiscover", saved(apart, tmp_path), "--strict").code == 0


def test_several_roots_in_one_fabric_are_named(run: CommandLine, tmp_path: Path) -> None:
    """A single cable between two islands joins nothing: it may be miswired."""
    pods = shapes.rail_optimised(2, 4, 2, shared_spines=4, pods=2)
    cores = {s.guid for s in pods.switches if s.level == 3}
    one, other = (s.guid for s in pods.switches if s.name in ("spine-p01-01", "spine-p02-01"))
    cables = (*(c for c in pods.cables if c.b not in cores), Cable(one, 30, other, 30))
    fabric = replace(pods, cables=cables, switches=tuple(s for s in pods.switches if s.level < 3))
    ran = run("infer", "--ibnetdiscover", saved(fabric, tmp_path), "--strict")
    assert ran.code == 3
    assert "warning: the tree has 2 roots in one connected fabric (" in ran.err
    assert "in no tier" not in ran.err


def test_roots_that_no_cable_joins_are_named_if_one_sweep_has_them(run: CommandLine, tmp_path: Path) -> None:
    texts = [sweep_text(FABRIC), sweep_text(shapes.clos2(2, 4, 2, seed=7)).replace(b"node-", b"other-")]
    files = [tmp_path / "one", tmp_path / "other"]
    for file, text in zip(files, texts, strict=True):
        file.write_bytes(text)
    both = tmp_path / "both"
    both.write_bytes(b"".join(texts))
    ran = run("infer", "--ibnetdiscover", both, "--strict")
    assert ran.code == 3
    assert "warning: the tree has 2 roots in one sweep (" in ran.err
    assert run("infer", *(flag for file in files for flag in ("--ibnetdiscover", file)), "--strict").code == 0


def test_a_tier_that_is_gone_is_named(run: CommandLine, tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    before.write_text(run("infer", "--ibnetdiscover", saved(FABRIC, tmp_path), "-o", "json").out)
    now = saved(joined_leaves(), tmp_path)
    ran = run("infer", "--ibnetdiscover", now, "--previous", before, "--strict")
    assert ran.code == 3
    assert "warning: the tier 'pod' of the previous tree is gone\n" in ran.err


def test_endpoints_that_are_foreign_by_name_are_said(run: CommandLine, tmp_path: Path) -> None:
    fabric, planted = plant(FABRIC, Fault.LOGIN, Random(3))
    ran = run("infer", "--ibnetdiscover", saved(fabric, tmp_path), "--strict")
    assert ran.code == 0
    assert "taken for no compute host by name and wiring" in ran.err
    assert all(name in ran.err for name in planted.foreign)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--nodes", "other.txt"], "none of the 8 hosts in the files is in --nodes"),
        (["--compute-ports", "eth.*"], "no cable of a host leads to a leaf of the compute fabric"),
    ],
)
def test_an_empty_tree_says_why(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("other.txt").write_text("some-other-node\n")
    ran = run("infer", "--ibnetdiscover", saved(FABRIC, tmp_path), *flags)
    assert ran.code == 3
    assert f"warning: the tree is empty: {why}" in ran.err
    assert run("infer", "--ibnetdiscover", saved(FABRIC, tmp_path), *flags, "--strict").code == 3


def test_a_pattern_that_is_no_expression_is_refused(run: CommandLine, tmp_path: Path) -> None:
    ran = run("infer", "--ibnetdiscover", saved(FABRIC, tmp_path), "--compute-ports", "(")
    assert ran.code == 2
    assert "--compute-ports" in ran.err


@pytest.mark.parametrize("lines", [100, 250, 300])
def test_a_dump_that_was_cut_off_is_a_gap(run: CommandLine, lines: int, tmp_path: Path) -> None:
    """What is left forms a tree of fewer hosts, in which nothing else is missing."""
    whole = (ROOT / "examples/fabric.txt").read_text().splitlines(keepends=True)
    cut = tmp_path / "fabric.txt"
    cut.write_text("".join(whole[:lines]))
    command = "infer", "--ibnetdiscover", str(cut)
    assert run(*command).code == 0
    ran = run(*command, "--strict")
    assert ran.code == 3
    assert "the dump is incomplete" in ran.err

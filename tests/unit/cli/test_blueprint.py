"""Blueprints and snapshots on the command line: `diff --blueprint`, `infer --blueprint`, `snapshot`."""

import json
import zlib
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hyperscout_collector.app.publication.saver import read_saved
from hyperscout_collector.evidence.sqlite import SqliteStore
from hyperscout_sim.fabric.faults import plant
from hyperscout_sim.fabric.planted import Fault
from hyperscout_sim.fabric.shapes import clos2
from hyperscout_sim.readings.sweep_text import sweep_texts
from hyperscout_topology.objects import to_json
from hyperscout_topology.topology import Link, LinkTable
from support.blueprint_files import DIFFERS, HOLDS, LINES, plan
from support.cabling_files import PLANS
from support.command_line import CommandLine
from support.topologies import two_leaves


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "saved.json"
    path.write_text(json.dumps(to_json(two_leaves())))
    return path


def test_what_is_wired_as_declared_is_no_difference(run: CommandLine, tmp_path: Path, saved: Path) -> None:
    ran = run("diff", "--blueprint", plan(tmp_path, HOLDS), "--topology", saved)
    assert (ran.code, ran.out, ran.err) == (0, "", "nothing differs\n")


def test_what_differs_is_listed_and_is_the_answer_no(run: CommandLine, tmp_path: Path, saved: Path) -> None:
    ran = run("diff", "--blueprint", plan(tmp_path, DIFFERS), "--topology", saved)
    assert (ran.code, ran.out.splitlines(), ran.err) == (3, LINES, "")
    ran = run("diff", "--blueprint", "-", "--topology", saved, stdin=DIFFERS.encode())
    assert (ran.code, ran.out.splitlines()) == (3, LINES)


def test_what_is_accepted_is_the_blueprint_from_then_on(
    run: CommandLine, tmp_path: Path, saved: Path
) -> None:
    path = plan(tmp_path, DIFFERS)
    link = tmp_path / "link.yaml"
    link.symlink_to(path)
    ran = run("diff", "--blueprint", link, "--accept", "--topology", saved)
    assert (ran.code, ran.out.splitlines()) == (0, LINES)
    assert ran.err.splitlines() == [
        "warning: pattern 'hosts' no longer applies: its cables are lines now",
        f"{link}: 0 patterns kept, 5 cables written as lines",
    ]
    assert link.is_symlink()
    assert path.read_text().startswith("# Hall 1\nversion: 1\nswitches:\n- leaf-a\n")
    ran = run("diff", "--blueprint", path, "--topology", saved)
    assert (ran.code, ran.out) == (0, "")


@pytest.mark.parametrize("kind", PLANS)
def test_a_plan_of_another_system_is_a_blueprint(
    run: CommandLine, tmp_path: Path, saved: Path, kind: str
) -> None:
    path = tmp_path / "plan"
    path.write_bytes(PLANS[kind])
    ran = run("diff", "--blueprint", path, "--topology", saved)
    assert (ran.code, ran.out, ran.err) == (0, "", "nothing differs\n")
    ran = run("diff", "--blueprint", path, "--accept", "--topology", saved)
    assert (ran.code, f"--accept would replace this {kind}: name a new file" in ran.err) == (2, True)
    assert path.read_bytes() == PLANS[kind]


def test_a_difference_from_such_a_plan(run: CommandLine, tmp_path: Path, saved: Path) -> None:
    dot = (
        PLANS["Graphviz DOT"].replace(b'"leaf-b":"2"', b'"leaf-b":"1"').replace(b"}", b'n3:1 -- "leaf-b":4 }')
    )
    ran = run("diff", "--blueprint", "-", "--topology", saved, stdin=dot)
    assert (ran.code, ran.out.splitlines()) == (
        3,
        ["- no cable from n3/p1 to leaf-b/p4; the blueprint has one", LINES[1]],
    )
    ran = run("diff", "--blueprint", "-", "--topology", saved, stdin=dot.replace(b"n3:1", b'"leaf-a":"p9"'))
    assert (
        ran.code,
        "stdin:8: as Graphviz DOT: leaf-a/p9 has two cables (line 6 and line 8)" in ran.err,
    ) == (2, True)


def test_links_are_written_for_netbox(run: CommandLine, tmp_path: Path, saved: Path) -> None:
    ran = run("get", "links", "--topology", saved, "-o", "netbox-csv")
    assert (ran.code, ran.err) == (0, "")
    ran = run("diff", "--blueprint", "-", "--topology", saved, stdin=ran.out.encode())
    assert (ran.code, ran.err) == (0, "nothing differs\n")
    ran = run("get", "links", "n01", "--topology", saved, "-o", "netbox-csv")
    assert ran.out.splitlines()[1:] == ["n01,dcim.interface,mlx5_0,leaf-a,dcim.interface,1,connected"]
    ran = run("get", "nodes", "--topology", saved, "-o", "netbox-csv")
    assert (ran.code, "-o netbox-csv writes cables, not nodes" in ran.err) == (2, True)


def test_links_that_netbox_cannot_import_are_counted(run: CommandLine, tmp_path: Path) -> None:
    links = [Link("s1", "", "s9", "1", "ib", ())]
    path = tmp_path / "saved.json"
    path.write_text(json.dumps(to_json(replace(two_leaves(), links=LinkTable.of(links)))))
    ran = run("get", "links", "--topology", path, "-o", "netbox-csv")
    assert (ran.code, len(ran.out.splitlines())) == (0, 1)
    assert ran.err.startswith("warning: 1 link is left out: without both ports")


def test_cables_left_out_of_a_plan_are_counted(run: CommandLine, tmp_path: Path, saved: Path) -> None:
    text = PLANS["NetBox CSV"].decode().replace("leaf-b,dcim.interface,2", "pp,dcim.frontport,2")
    ran = run("diff", "--blueprint", "-", "--topology", saved, stdin=text.encode())
    assert (ran.code, ran.err.splitlines()) == (
        0,
        ["note: stdin: 1 cable is left out: 1 at a patch panel", "nothing differs"],
    )


def test_the_first_blueprint_is_what_is_wired(run: CommandLine, tmp_path: Path, saved: Path) -> None:
    path = tmp_path / "new.yaml"
    ran = run("diff", "--blueprint", path, "--accept", "--topology", saved)
    assert (ran.code, ran.out, ran.err) == (0, "", f"{path}: 0 patterns kept, 5 cables written as lines\n")
    assert "- n01/mlx5_0 -> leaf-a/p1\n" in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--blueprint", "PLAN", "--accept"), 2, "not YAML"),
        (("--blueprint", "PLAN"), 2, "not YAML"),
        (("--blueprint", "ABSENT"), 2, "No such file"),
        (("--blueprint", "ABSENT/x", "--accept"), 1, "No such file"),
        (("--blueprint", "-", "--accept"), 2, "name its file"),
        (("--accept",), 2, "name its file with --blueprint"),
        (("--blueprint", "PLAN", "--hypernodes", "x"), 2, "give one of them"),
        (("other.json", "--blueprint", "PLAN"), 2, "not both"),
    ],
)
def test_what_cannot_be_meant(
    run: CommandLine, tmp_path: Path, saved: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    path = plan(tmp_path, "links: [")
    words = (a.replace("PLAN", str(path)).replace("ABSENT", str(tmp_path / "absent")) for a in arguments)
    ran = run("diff", *words, "--topology", saved)
    assert ran.code == code
    assert said in ran.err
    assert path.read_text() == "links: ["


def test_nothing_is_accepted_where_nothing_is_wired(run: CommandLine, tmp_path: Path) -> None:
    path = plan(tmp_path, HOLDS)
    (tmp_path / "empty.json").write_text('{"hypernodes": []}')
    ran = run("diff", "--blueprint", path, "--accept", "--topology", tmp_path / "empty.json")
    assert (ran.code, path.read_text()) == (1, HOLDS)
    assert "the topology has no cable" in ran.err


def test_infer_names_what_differs(run: CommandLine, tmp_path: Path) -> None:
    fabric = clos2(leaves=2, hosts_per_leaf=4, spines=2)
    (tmp_path / "ib.txt").write_bytes(sweep_texts(fabric)[0])
    blueprint = plan(
        tmp_path,
        """\
switches:
- leaf-[01-02]
- spine-[01-02]
patterns:
- for: {l: 1-2, n: 1-4}
  link: node-{(l-1)*4+n:04}/mlx5_0 -> leaf-{l:02}/p{n}
- for: {l: 1-2, s: 1-2}
  link: leaf-{l:02} -> spine-{s:02}/p{l}
""",
    )
    ran = run("infer", "--ibnetdiscover", tmp_path / "ib.txt", "--blueprint", blueprint, "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["anomalies"] == []

    moved, _ = plant(fabric, Fault.SWAPPED_HOST_LINKS, Random(1))
    (tmp_path / "ib.txt").write_bytes(sweep_texts(moved)[0])
    ran = run("infer", "--ibnetdiscover", tmp_path / "ib.txt", "--blueprint", blueprint, "-o", "json")
    assert ran.code == 0
    found = json.loads(ran.out)
    drift = [x for x in found["anomalies"] if x["kind"] == "BlueprintDrift"]
    assert len(drift) == 2
    assert all(
        x["subject"]["name"] and x["peer"]["name"] and "the blueprint has" in x["message"] for x in drift
    )
    reasons = {c["reason"] for h in found["hypernodes"] for c in h["conditions"] if c["type"] == "Consistent"}
    assert "BlueprintDrift" in reasons
    assert "warning: BlueprintDrift: " in ran.err


def test_infer_reads_stdin_once(run: CommandLine) -> None:
    ran = run("infer", "--ibnetdiscover", "-", "--blueprint", "-")
    assert (ran.code, "read only once" in ran.err) == (2, True)


def test_a_collector_goes_on_from_a_snapshot(run: CommandLine, tmp_path: Path, saved: Path) -> None:
    data = tmp_path / "data"
    ran = run("snapshot", "load", saved, "--data-dir", data)
    assert (ran.code, ran.out) == (0, "")
    store = SqliteStore(data / "evidence.db")
    try:
        loaded = store.load()
        assert loaded.lacks_evidence, "the collector waits for its agents before it infers"
        topology, problem = read_saved(loaded.topology)
        assert (to_json(topology) if topology else None, problem) == (to_json(two_leaves()), None)
        json_of_0_1 = zlib.compress(json.dumps(to_json(two_leaves())).encode(), 1)
        assert read_saved(json_of_0_1)[1] is None
        ran = run("snapshot", "load", saved, "--data-dir", data)
        assert (ran.code, "another collector is using it" in ran.err) == (1, True)
    finally:
        store.close()


def test_a_snapshot_that_is_none_is_not_loaded(run: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"hypernodes": 3}')
    ran = run("snapshot", "load", tmp_path / "s.json", "--data-dir", tmp_path / "data")
    assert (ran.code, "not a saved topology: topology.hypernodes" in ran.err) == (2, True)
    assert not (tmp_path / "data").exists()

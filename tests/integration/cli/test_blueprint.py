"""Blueprints and snapshots on the command line: `diff --blueprint`, `infer --blueprint`, `snapshot`."""

from pathlib import Path

from support.blueprint_files import DIFFERS, HOLDS, LINES, plan
from support.command_line import CommandLine
from support.topology_service import FakeTopologyService


def test_a_running_collector_is_asked_with_its_links(
    run: CommandLine, service: FakeTopologyService, tmp_path: Path
) -> None:
    assert run("diff", "--blueprint", plan(tmp_path, DIFFERS)).out.splitlines() == LINES
    assert run("diff", "--blueprint", plan(tmp_path, HOLDS)).code == 0


def test_a_snapshot_is_the_topology_with_its_links(
    run: CommandLine, service: FakeTopologyService, tmp_path: Path
) -> None:
    path = tmp_path / "s.json"
    ran = run("snapshot", "save", path)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == f"{path}: generation 7, 3 HyperNodes, 5 links\n"
    assert run("diff", path).code == 0
    assert run("snapshot", "load", path, "-o", "json").out == path.read_text()
    assert run("snapshot", "load", path).out == run("tree", "--topology", path).out
    ran = run("snapshot", "save", tmp_path / "no" / "s.json")
    assert (ran.code, "No such file" in ran.err) == (1, True)

"""What help and documents say to type can be typed: each example of placing is run as it is written."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from hyperscout_sim.fabric.shapes import clos3
from hyperscout_sim.readings.sweep_text import sweep_texts
from support.command_line import CommandLine
from support.placement_service import FakePlacementService, placed, serving_placements
from support.topologies import two_leaves
from support.topology_service import FakeTopologyService

ROOT = Path(__file__).parents[3]
COMMANDS = [
    ("place",),
    ("explain-placement",),
    ("placements",),
    *(("placements", x) for x in ("list", "release", "repair", "resize", "improve", "defragment")),
]
DOCUMENTS = ["docs/placer.md"]  # test_console runs the examples of the others
_EXAMPLE = re.compile(r"^ +(?:\$ )?(hyperscout (?:infer .*\| )?.*)$", re.MULTILINE)
_OF_PLACING = re.compile(r"hyperscout (place|explain-placement|placements)\b")
_REQUEST = {"parts": [{"workers": {"count": 1, "role": "leader"}}, {"workers": {"count": 3}}]}


def examples(text: str) -> list[str]:
    """Without what is said beside them."""
    found = [re.split(r" {3,}|\s+#", line)[0].strip() for line in _EXAMPLE.findall(text)]
    return [line for line in found if _OF_PLACING.search(line)]


@pytest.fixture
def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: CommandLine
) -> Iterator[FakePlacementService]:
    """The files that examples name, and a collector where they expect one."""
    monkeypatch.chdir(tmp_path)
    (sweep,) = sweep_texts(clos3(2, 4, 16, 2, 2))
    (tmp_path / "fabric.txt").write_bytes(sweep.encode() if isinstance(sweep, str) else sweep)
    (tmp_path / "fabric.json").write_text(run("infer", "--ibnetdiscover", "fabric.txt", "-o", "json").out)
    (tmp_path / "free.json").write_text(json.dumps({f"node-{i:04}": 1 for i in range(1, 65)}))
    (tmp_path / "job.json").write_text(json.dumps(_REQUEST))
    service = FakePlacementService()
    service.held = {name: placed(name, "n01") for name in ("train-7",)}
    with serving_placements(service, FakeTopologyService(topology=two_leaves())) as fake:
        monkeypatch.setenv("HYPERSCOUT_COLLECTOR", fake.address)
        yield fake


def typed(run: CommandLine, service: FakePlacementService, line: str) -> None:
    service.held.setdefault("train-7", placed("train-7", "n01"))
    piped = b""
    for command in line.split("|"):
        name, *words = shlex.split(command)
        assert name == "hyperscout", line
        ran = run(*words, stdin=piped)
        assert ran.code in (0, 3), (line, ran.err)
        piped = ran.out.encode()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_examples_of_help(run: CommandLine, world: FakePlacementService, command: tuple[str, ...]) -> None:
    found = examples(run(*command, "--help").out)
    assert found
    for line in found:
        typed(run, world, line)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_examples_of_documents(run: CommandLine, world: FakePlacementService, document: str) -> None:
    found = examples((ROOT / document).read_text())
    assert len(found) >= 4
    for line in found:
        typed(run, world, line)


def test_the_request_of_the_page_is_one(run: CommandLine, world: FakePlacementService) -> None:
    text = (ROOT / "docs" / "offline.md").read_text()
    Path("page.json").write_text(text[text.index('{"mode"') : text.index("```\n\nAgainst a collector")])
    Path("gpus.json").write_text(
        json.dumps({f"node-{i:04}": {"nvidia.com/gpu": 8, "cpu": 64, "workers": 1} for i in range(1, 65)})
    )
    ran = run("place", "--topology", "fabric.json", "--capacity", "gpus.json", "--request", "page.json")
    assert (ran.code, ran.err) == (0, "")
    assert "Workers:      32" in ran.out

"""The blueprint's file while a collector runs: read anew when it changed, and never worse than before."""

import asyncio
import os
from pathlib import Path

import pytest
from hyperscout_collector.app.inference import blueprint_file
from hyperscout_collector.app.inference.blueprint_file import BlueprintFile
from hyperscout_topology.topology import Topology
from support.cabling_files import PLANS
from support.topologies import two_leaves
from support.waiting import TIMEOUT_S

GOOD = "links: [n01/mlx5_0 -> leaf-a/p1]\n"
OTHER = "links: [n01/mlx5_0 -> leaf-a/p2]\n"


def messages(topology: Topology) -> list[str]:
    return [x.message for x in topology.anomalies if x.kind == "BlueprintDrift"]


class Written:
    """A file and its reader. Each write is a moment later than the one before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.blueprint = BlueprintFile(path, lambda: None)
        self._ns = 10**18

    def write(self, text: str) -> bool:
        self.path.write_text(text)
        self._ns += 10**9
        os.utime(self.path, ns=(self._ns, self._ns))
        return self.blueprint.read()

    def drifts(self) -> int:
        return len(messages(self.blueprint.drifted(two_leaves())))


@pytest.fixture
def file(tmp_path: Path) -> Written:
    return Written(tmp_path / "plan.yaml")


def test_it_is_taken_when_it_is_another_one(file: Written) -> None:
    assert file.write(GOOD)
    assert (file.drifts(), file.blueprint.problem) == (0, None)
    assert not file.blueprint.read()
    assert not file.write(GOOD)
    assert file.write(OTHER)
    assert file.drifts() == 2


def test_a_plan_of_another_system_says_what_it_leaves_out(
    file: Written, caplog: pytest.LogCaptureFixture
) -> None:
    csv = PLANS["NetBox CSV"].decode()
    assert file.write(csv.replace("leaf-b,dcim.interface,2", "pp,dcim.rearport,2"))
    assert (file.drifts(), file.blueprint.problem) == (0, None)
    assert f"{file.path}: 1 cable is left out: 1 at a patch panel" in caplog.messages


def test_a_bad_one_leaves_the_last_good_one_in_force(file: Written) -> None:
    file.write(OTHER)
    assert not file.write("links: [n01 ->")
    assert file.drifts() == 2
    assert file.blueprint.problem == (
        f"the blueprint is not in force, the previous one stays in force: {file.path}:2: not YAML: "
        "did not find expected ',' or ']'"
    )
    assert not file.blueprint.read()
    assert file.write(OTHER)  # what is said of it has changed
    assert (file.drifts(), file.blueprint.problem) == (2, None)


def test_a_defect_of_a_reader_leaves_it_in_force_too(file: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(data: bytes, source: str) -> None:
        raise RecursionError("too deep")

    assert file.write(GOOD)
    with monkeypatch.context() as patch:
        patch.setattr(blueprint_file, "parse", defect)
        assert not file.write(OTHER)
    assert "the previous one stays in force: " in (file.blueprint.problem or "")
    assert "RecursionError: too deep" in (file.blueprint.problem or "")
    assert file.write(f"{GOOD}# ")


def test_a_file_that_is_gone_leaves_it_in_force_too(file: Written) -> None:
    file.write(OTHER)
    file.path.unlink()
    assert not file.blueprint.read()
    assert file.blueprint.problem is not None
    assert "No such file or directory: check the setting `blueprint`" in file.blueprint.problem
    assert file.drifts() == 2
    assert file.write(GOOD)
    assert (file.drifts(), file.blueprint.problem) == (0, None)


def test_a_file_that_was_away_is_read_when_it_is_back(file: Written) -> None:
    file.write(OTHER)
    away = file.path.with_name("away")
    file.path.rename(away)
    file.blueprint.read()
    assert file.blueprint.problem is not None
    away.rename(file.path)
    file.blueprint.read()
    assert file.blueprint.problem is None


def test_a_collector_starts_without_it(file: Written) -> None:
    assert not file.blueprint.read()
    assert file.blueprint.problem is not None
    assert "there is none: " in file.blueprint.problem
    assert file.drifts() == 0
    assert file.write(OTHER)
    assert file.drifts() == 2


def test_a_config_map_is_swapped_by_a_link(tmp_path: Path) -> None:
    for name, text in (("one", GOOD), ("two", OTHER)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "plan.yaml").write_text(text)
        os.utime(tmp_path / name / "plan.yaml", ns=(10**18, 10**18))
    data = tmp_path / "data"
    data.symlink_to("one")
    blueprint = BlueprintFile(data / "plan.yaml", lambda: None)
    assert blueprint.read()
    (tmp_path / "new").symlink_to("two")
    (tmp_path / "new").rename(data)
    assert blueprint.read()
    assert len(messages(blueprint.drifted(two_leaves()))) == 2


async def test_inference_is_told(file: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blueprint_file, "CHECK_S", 0.0)
    told = asyncio.Event()
    blueprint = BlueprintFile(file.path, told.set)
    task = asyncio.create_task(blueprint.run())
    try:
        file.write(GOOD)
        async with asyncio.timeout(TIMEOUT_S):
            await told.wait()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

"""A collector with a blueprint: drift in conditions and anomalies, as cables and the file change."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.inference import blueprint_file
from hyperscout_topology.topology import Topology
from support.collectors import at_rest, collector_settings, playing
from support.rest_collector import status_of
from support.waiting import eventually

PLAN = """\
switches:
- leaf-[01-02]
- spine-[01-02]
patterns:
- name: hosts
  for: {l: 1-2, n: 1-4}
  link: node-{(l-1)*4+n:04}/mlx5_0 -> leaf-{l:02}/p{n}
- name: uplinks
  for: {l: 1-2, s: 1-2}
  link: leaf-{l:02} -> spine-{s:02}/p{l}
"""


async def until(collector: Collector, wanted: Callable[[Topology], bool]) -> Topology:
    """The first published topology that is as wanted."""

    def now() -> Topology:
        return collector.watchers.current.topology

    await eventually(lambda: wanted(now()), lambda: str([(x.kind, x.message) for x in now().anomalies]))
    return now()


def drift(topology: Topology) -> list[str]:
    return [x.message for x in topology.anomalies if x.kind == "BlueprintDrift"]


def inconsistent(topology: Topology) -> dict[str, str]:
    return {
        h.name: c.reason
        for h in topology.hypernodes
        for c in h.conditions
        if c.type == "Consistent" and c.status == "False"
    }


def whole(topology: Topology) -> bool:
    return [len(h.nodes) for h in topology.hypernodes] == [4, 4, 8]


def problems(collector: Collector) -> list[str]:
    return [p for p in status_of(collector).problems if "blueprint" in p]


async def test_drift_comes_and_goes_with_cables_and_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blueprint_file, "CHECK_S", 0.02)
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    settings = collector_settings(tmp_path, blueprint=plan)
    async with Collector(settings) as collector, playing(collector.address) as player:
        healthy = await until(collector, whole)
        assert (drift(healthy), inconsistent(healthy), problems(collector)) == ([], {}, [])

        adapter = next(a for a in player.fabric.adapters if a.host == "node-0003")
        cable = next(c for c in player.fabric.cables if c.a == adapter.guid)
        player.cut(cable)
        cut = await until(collector, lambda t: bool(drift(t)))
        assert drift(cut) == ["no cable from node-0003/mlx5_0 to leaf-01/p3; the blueprint has one"]
        (found,) = (x for x in cut.anomalies if x.kind == "BlueprintDrift")
        assert found.peer is not None
        assert (found.subject.name, found.peer.name, found.since_ns > 0) == ("node-0003", "leaf-01", True)
        assert inconsistent(cut) == {found.hypernode: "BlueprintDrift"}
        player.restore(cable)
        await until(collector, lambda t: not drift(t) and not inconsistent(t))

        plan.write_text(PLAN.replace("l: 1-2", "l: 1-3"))
        more = await until(collector, lambda t: bool(drift(t)))
        assert [text.split(":")[0] for text in drift(more)] == [
            "leaf-03 has 6 cables in the blueprint, and none of them is present"
        ]

        plan.write_text("links: [")
        await eventually(lambda: problems(collector))
        assert drift(collector.watchers.current.topology) == drift(more)

        plan.write_text(PLAN)
        await until(collector, lambda t: not drift(t))
        assert problems(collector) == []


async def test_a_restart_finds_the_drift_again(tmp_path: Path) -> None:
    """No all-clear in between: the file is read before anything is inferred."""
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN.replace("p{n}", "p{5-n}"))
    settings = collector_settings(tmp_path, blueprint=plan, hold_down_s=0)  # an all-clear is not held back
    async with Collector(settings) as collector, playing(collector.address) as player:
        await until(collector, lambda t: whole(t) and len(drift(t)) == 8)
        await at_rest(collector, player)
        before = collector.watchers.current.topology
    async with Collector(settings) as collector:
        await eventually(lambda: collector.components.inference.pipeline.inferences)
        after = collector.watchers.current.topology
        assert drift(after) == drift(before)
        assert after.generation == before.generation

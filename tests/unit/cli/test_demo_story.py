"""The demo's story over real inference, without processes: what it expects is what a fault must show."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_cli.demo import demo
from hyperscout_cli.demo.demo import demo_fabric
from hyperscout_cli.demo.demo_collector import DemoError
from hyperscout_cli.demo.demo_story import View, run_story
from hyperscout_formats.infiniband.ibnetdiscover import parse
from hyperscout_inference.fabric.inputs import FabricInputs, SweepSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric.fabric import Cable, SimFabric
from hyperscout_sim.fabric.shapes import rail_optimised
from hyperscout_sim.readings.sweep_text import sweep_texts
from hyperscout_topology.proto import topology_to_proto
from hyperscout_topology.topology import Topology
from support.builders import hypernode
from support.command_line import CommandLine

TIMEOUT_S = 0.0  # of a step that is never seen; the events of one that is seen are applied before it expires


@dataclass
class Fabric:
    """A fabric that is inferred anew at each fault; `heal` False: nothing is ever put back."""

    plan: SimFabric
    view: View
    heal: bool = True
    deaf: bool = False
    clumsy: bool = False  # cuts the cable beside
    cut_cables: set[Cable] = field(default_factory=set)
    pulled: set[int] = field(default_factory=set)
    published: Topology | None = None
    sent: list["asyncio.Task[None]"] = field(default_factory=list)

    def cut(self, cable: Cable) -> None:
        beside = next(c for c in self.plan.cables if c.b == cable.b and c.a != cable.a)
        self.cut_cables.add(beside if self.clumsy else cable)
        self.look()

    def restore(self, cable: Cable) -> None:
        self.cut_cables -= {cable} if self.heal else set()
        self.look()

    def pull(self, switch: int) -> None:
        self.pulled.add(switch)
        self.look()

    def push_back(self, switch: int) -> None:
        self.pulled -= {switch} if self.heal else set()
        self.look()

    def look(self) -> None:
        if self.deaf:
            return
        kept = [c for c in self.plan.cables if c not in self.cut_cables and not {c.a, c.b} & self.pulled]
        switches = [s for s in self.plan.switches if s.guid not in self.pulled]
        fabric = replace(self.plan, cables=tuple(kept), switches=tuple(switches))
        sweeps = tuple(SweepSeen(parse(text)) for text in sweep_texts(fabric))
        inputs = FabricInputs(sweeps=sweeps, node_map=fabric.node_map())
        self.published = infer(inputs, previous=self.published)
        event = pb.WatchTopologyResponse(snapshot=topology_to_proto(self.published, omit_links=True))
        self.sent.append(asyncio.get_running_loop().create_task(self.view.feed(event)))


def played(**behaviour: bool) -> tuple[Fabric, list[str]]:
    said: list[str] = []
    plan = rail_optimised(2, 4, 4, 2, pods=2)
    fabric = Fabric(plan, View(lambda: 0.0, lambda: 0), **behaviour)
    return fabric, said


async def test_the_story_sees_each_fault_come_and_go() -> None:
    fabric, said = played()
    fabric.look()
    seen = await run_story(fabric.plan, fabric, fabric.view, said.append)
    assert [x.what.rsplit(" ", 1)[-1] for x in seen] == ["stream", "cut", "back", "pulled", "back"]
    told = "".join(said)
    assert "4 of tier 1, 2 of tier 2, 1 of tier 3" in seen[0].saw
    assert "LinksDown" in told
    assert "SwitchMissing" in told
    assert said[-1].count("False") >= 1


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        ({"deaf": True}, "HyperNodes as the 16 nodes are cabled; now:\nNAME"),
        ({"clumsy": True}, "a HyperNode Degraded, since cable"),
        ({"heal": False}, "a HyperNode well again, since cable"),
        ({"heal": False}, ": 1 of 16 host links down: node-0001 mlx5_0/p1 -> leaf-p01-u01-r0/p1"),
    ],
)
async def test_what_never_turns_is_an_error_that_says_what_was_expected(
    behaviour: dict[str, bool], expected: str
) -> None:
    fabric, said = played(**behaviour)
    fabric.look()
    with pytest.raises(DemoError) as caught:
        await run_story(fabric.plan, fabric, fabric.view, said.append, TIMEOUT_S)
    assert expected in str(caught.value)


class Looker:
    """A witness that sees what the view says, or one thing never."""

    asked = "look"

    def __init__(self, never: str = "") -> None:
        self.never = never
        self.seen: list[str] = []

    async def whole(self, names: frozenset[str]) -> str:
        return self._see(f"all {len(names)}")

    async def turned(self, name: str, degraded: str) -> str:
        return self._see(f"{name.split('-')[0]} {degraded}")

    def _see(self, what: str) -> str:
        if what == self.never:
            raise DemoError(f"never {what}")
        self.seen.append(what)
        return f"{what}\n"


async def test_a_witness_is_asked_at_each_step() -> None:
    fabric, said = played()
    fabric.look()
    looker = Looker()
    await run_story(fabric.plan, fabric, fabric.view, said.append, witness=looker)
    assert looker.seen == ["all 7", "leaf True", "leaf False", "spine True", "spine False"]
    assert "look\nall 7\n" in said
    assert any(text.startswith("look --watch") and text.endswith("spine False\n") for text in said)


@pytest.mark.parametrize("never", ["all 7", "leaf True", "spine False"])
async def test_what_the_witness_never_sees_ends_the_story(never: str) -> None:
    fabric, said = played()
    fabric.look()
    with pytest.raises(DemoError, match=f"never {never}"):
        await run_story(fabric.plan, fabric, fabric.view, said.append, witness=Looker(never))


async def test_a_lost_collector_ends_the_story() -> None:
    fabric, said = played(deaf=True)
    await fabric.view.fail(DemoError("the collector is gone"))
    with pytest.raises(DemoError, match="is gone"):
        await run_story(fabric.plan, fabric, fabric.view, said.append)


def test_a_long_table_is_cut() -> None:
    view = View(lambda: 0.0, lambda: 0)
    view.topology = Topology(1, hypernodes=tuple(hypernode(f"h{i:03}", nodes=(f"n{i}",)) for i in range(50)))
    shown = list(view.table())
    assert len(shown) == 42
    assert shown[-1] == "... and 10 more\n"
    assert len(list(view.table(frozenset({"h001", "h049"})))) == 3


@pytest.mark.parametrize("nodes", [8, 9, 63, 64, 65, 1000, 1999])
def test_a_demo_of_any_size_has_three_tiers(nodes: int) -> None:
    fabric = demo_fabric(nodes)
    assert len(fabric.hosts) == nodes
    units, pods, whole = fabric.truth.tiers
    assert (len(pods), len(whole)) == (2, 1)
    assert max(map(len, units)) - min(map(len, units)) <= 1


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ("7", "expected a whole number from 8 to 100000"),
        ("600", "the collector needs 1112 open files, and a process may open 1000: give at most --nodes 488"),
    ],
)
def test_a_demo_that_does_not_fit_is_refused(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch, nodes: str, said: str
) -> None:
    monkeypatch.setattr(demo, "raise_open_files", lambda: 1000)
    ran = run("demo", "--nodes", nodes)
    assert (ran.code, ran.out) == (2, "")
    assert said in " ".join(ran.err.split())

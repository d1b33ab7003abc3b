"""What is kept of sweeps and of the published cables changes no verdict on a sweep."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from hyperscout_formats.facts.facts import InfinibandPort
from hyperscout_formats.infiniband.ibnetdiscover import Sweep, parse
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions, SweepSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_inference.sweeps.claims import SweepClaim, SweepVerdict, Witnesses, judge_sweeps
from hyperscout_sim.fabric.fabric import Cable, SimFabric
from hyperscout_sim.fabric.shapes import multi_plane
from hyperscout_sim.readings.sweep_text import sweep_text
from hyperscout_topology.link_changes import table_of, without
from hyperscout_topology.topology import Link, LinkTable, Topology
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.inference import own_ports
from support.inference import without as cut

PLANES = 2
FABRIC = multi_plane(PLANES, 2, 3, 2)
HOSTS = FABRIC.hosts
CABLES = [cable for cable in FABRIC.cables if cable.a in FABRIC.node_map()]
OPTIONS = InferOptions(frozenset(HOSTS))


def claim_of(host: str, plane: int, fabric: SimFabric = FABRIC) -> SweepClaim:
    adapter = FABRIC.adapters_of()[host][plane]
    return SweepClaim(host, adapter.device, adapter.port_guid, parse(sweep_text(fabric, adapter.guid)))


def seen(claims: list[SweepClaim] | list[SweepVerdict]) -> tuple[SweepSeen, ...]:
    return tuple(SweepSeen(one.sweep, observed_at_ns=i) for i, one in enumerate(reversed(claims)))


@dataclass(slots=True)
class World:
    """The newest sweep comes first. `published`: the record."""

    claims: list[SweepClaim] = field(default_factory=lambda: [claim_of(HOSTS[i], i) for i in range(PLANES)])
    ports: dict[str, tuple[InfinibandPort, ...]] = field(
        default_factory=lambda: {host: own_ports(FABRIC, host) for host in HOSTS}
    )
    published: Topology | None = None
    is_alone: bool = False

    def judge(self) -> list[SweepVerdict]:
        """Judge the sweeps, and publish what is inferred from what counts of them."""
        found = judge_sweeps(*self.arguments())
        counted = [one for one in found if one.counts != "nothing"]
        ports = {**self.ports}  # evidence never changes after it was passed
        inputs = FabricInputs(seen(counted), infiniband=ports, infiniband_at_ns=dict.fromkeys(HOSTS, 99))
        self.published = infer(inputs, OPTIONS, self.published)
        return found

    def arguments(self) -> tuple[list[SweepClaim], Topology | None, Witnesses]:
        alone = [(claim.node, claim.device) for claim in self.claims] if self.is_alone else []
        return [*self.claims], self.published, Witnesses({**self.ports}, {*self.ports}, {}, alone)


def other_end(cable: Cable, at: int) -> Cable:
    """The cable is in the switch port of another host's cable."""
    other = CABLES[at % len(CABLES)]
    return cable._replace(b=other.b, b_port=other.b_port)


def is_replaced(world: World, host: str, at: int) -> None:
    """Another host of the plane sweeps instead."""
    world.claims[at % len(world.claims)] = claim_of(host, at % PLANES)


def lacks_a_cable(world: World, host: str, at: int) -> None:
    fabric = cut(FABRIC, FABRIC.cables[at % len(FABRIC.cables)])
    world.claims[at % len(world.claims)] = claim_of(host, at % PLANES, fabric)


def moves_a_cable(world: World, host: str, at: int) -> None:
    moved = CABLES[at % len(CABLES)]
    cables = tuple(other_end(moved, at + 1) if x == moved else x for x in FABRIC.cables)
    world.claims.insert(0, claim_of(host, at % PLANES, replace(FABRIC, cables=cables)))
    del world.claims[4:]


def is_swept_by_another(world: World, host: str, at: int) -> None:
    world.claims.insert(0, claim_of(host, at % PLANES))
    del world.claims[4:]


def is_not_swept(world: World, host: str, at: int) -> None:
    if len(world.claims) > 1:
        del world.claims[at % len(world.claims)]


def goes_down(world: World, host: str, at: int) -> None:
    mine = [cable for cable in CABLES if FABRIC.node_map()[cable.a] == host]
    world.ports[host] = own_ports(FABRIC, host, mine[at % len(mine)])


def is_back(world: World, host: str, at: int) -> None:
    world.ports[host] = own_ports(FABRIC, host)


def changes_its_host(world: World, host: str, at: int) -> None:
    """The agent of another host reports the adapters of this one."""
    world.ports[HOSTS[at % len(HOSTS)]] = world.ports.pop(host, ())


def is_alone(world: World, host: str, at: int) -> None:
    world.is_alone = not world.is_alone


def with_links(world: World, links: LinkTable) -> None:
    if world.published is not None:
        world.published = replace(world.published, links=links)


def lost_a_link(world: World, host: str, at: int) -> None:
    """The published topology changes, and no sweep does."""
    if world.published is not None and (table := table_of(world.published.links)):
        with_links(world, without(table, [at % len(table)]))


def has_another_link(world: World, host: str, at: int) -> None:
    if world.published is not None and (table := table_of(world.published.links)):
        links: list[Link] = list(table)
        one, other = links[at % len(links)], links[(at + 1) % len(links)]
        moved = replace(one, b_device=other.b_device, b_port="7", fabric=other.fabric)
        with_links(world, LinkTable.of([*links[at % len(links) :], moved, *links[: at % len(links)]]))


def has_a_link_in_another_fabric(world: World, host: str, at: int) -> None:
    if world.published is not None and (table := table_of(world.published.links)):
        fabric = table.fabric.copy()
        fabric[at % len(table)] = at % len(table.fabrics)
        with_links(world, replace(table, fabric=fabric))


CHANGES: list[Callable[[World, str, int], None]] = [
    is_replaced,
    lacks_a_cable,
    moves_a_cable,
    is_swept_by_another,
    is_not_swept,
    goes_down,
    is_back,
    changes_its_host,
    is_alone,
    lost_a_link,
    has_another_link,
    has_a_link_in_another_fabric,
]


def plain(value: Any) -> Any:
    """A verdict or a part of it, with lists in place of arrays."""
    if isinstance(value, SweepVerdict | Sweep):
        return [plain(getattr(value, one.name)) for one in fields(value)]
    return value.tolist() if isinstance(value, np.ndarray) else value


@given(
    st.lists(
        st.tuples(st.sampled_from(CHANGES), st.sampled_from(HOSTS), st.integers(0, 50)),
        min_size=1,
        max_size=8,
    )
)
@examples(2)
def test_what_is_kept_changes_no_verdict(changes: list[tuple[Callable[..., None], str, int]]) -> None:
    world, steps = World(), []
    world.judge()
    for change, host, at in changes:
        change(world, host, at)
        steps.append((world.arguments(), world.judge()))
    for (claims, published, witnesses), found in steps:
        # Nothing is kept of these objects.
        fresh = [replace(claim, sweep=replace(claim.sweep)) for claim in claims]
        cold = judge_sweeps(fresh, published, witnesses)
        assert cold
        assert list(map(plain, cold)) == list(map(plain, found))


def test_a_verdict_ends_with_its_cause() -> None:
    """The same sweeps are judged by the record of now, whatever was published before."""
    world = World()
    world.judge()
    claims, whole, witnesses = world.arguments()
    assert whole is not None
    table = table_of(whole.links)
    switches = {f"{x.guid:016x}" for x in FABRIC.switches}
    between = [row for row, x in enumerate(table) if {x.a_device, x.b_device} <= switches]
    assert len(between) > PLANES
    for row in between:
        lacking = replace(whole, links=without(table, [row]))
        assert disputes(judge_sweeps(claims, lacking, witnesses)) == [(1, frozenset())]
        assert disputes(judge_sweeps(claims, whole, witnesses)) == []
        moved = replace(table[row], b_port="9")
        other = replace(whole, links=LinkTable.of([*without(table, [row]), moved]))
        ends = frozenset({(int(moved.a_device, 16), int(moved.a_port)), (int(moved.b_device, 16), 9)})
        assert disputes(judge_sweeps(claims, other, witnesses)) == [(1, ends)]
        assert disputes(judge_sweeps(claims, whole, witnesses)) == []
        fabric = table.fabric.copy()
        fabric[row] = 1 - fabric[row]
        joined = replace(whole, links=replace(table, fabric=fabric))
        assert disputes(judge_sweeps(claims, joined, witnesses)), "its sweep lacks the other fabric"


def disputes(verdicts: list[SweepVerdict]) -> list[tuple[int, frozenset[tuple[int, int]]]]:
    """How many cables each sweep changes that changes some, and the published ends among them."""
    changed = [(x, re.match("it changes ([0-9]+) cable", x.reason)) for x in verdicts]
    return [(int(counted[1]), x.disputed) for x, counted in changed if counted]

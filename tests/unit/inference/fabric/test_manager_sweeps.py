"""A UFM beside sweeps, and instead of them: one fabric with two witnesses, and which is believed."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hyperscout_formats.facts.facts import InfinibandPort
from hyperscout_formats.infiniband import ibnetdiscover
from hyperscout_formats.managers import ufm
from hyperscout_inference.fabric.inputs import FabricInputs, SweepSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric.fabric import Cable, SimFabric
from hyperscout_sim.fabric.shapes import clos2, clos3, rail_optimised
from hyperscout_sim.readings.sweep_text import sweep_texts
from hyperscout_sim.readings.ufm import ufm_answers
from hyperscout_topology.topology import Topology
from hypothesis import given
from hypothesis import strategies as st
from support.inference import tiers, truth


def managed(fabric: SimFabric, at_ns: int = 0) -> SweepSeen:
    text = ufm.parse(json.dumps(ufm_answers(fabric)).encode()).text
    return SweepSeen(ibnetdiscover.parse(text, "ufm"), "ufm", observed_at_ns=at_ns)


def swept(fabric: SimFabric, at_ns: int = 0) -> list[SweepSeen]:
    return [SweepSeen(ibnetdiscover.parse(text), observed_at_ns=at_ns) for text in sweep_texts(fabric)]


def inferred(*sweeps: SweepSeen, agents: FabricInputs | None = None) -> Topology:
    return infer(replace(agents or FabricInputs(), sweeps=sweeps))


def without_port_guids(fabric: SimFabric) -> SimFabric:
    """Adapters whose port GUID is not their node GUID: those of all kinds that are sold."""
    return replace(fabric, adapters=tuple(replace(x, port_guid=x.guid + 0x1000) for x in fabric.adapters))


shapes: Sequence[Callable[[int], SimFabric]] = (
    lambda seed: clos2(3, 4, 2, seed=seed),
    lambda seed: clos3(2, 2, 3, 2, 2, seed=seed),
    lambda seed: rail_optimised(2, 4, 4, 2, seed=seed),
)


@given(st.sampled_from(shapes), st.integers(0, 1000))
def test_a_ufm_alone_gives_the_true_hierarchy(shape: Callable[[int], SimFabric], seed: int) -> None:
    fabric = without_port_guids(shape(seed))
    found = inferred(managed(fabric))
    assert tiers(found) == truth(fabric)
    assert not found.anomalies
    assert {link.sources for link in found.links} == {("ufm",)}


@pytest.mark.slow
@given(st.sampled_from(shapes), st.integers(0, 1000), st.booleans())
def test_beside_a_sweep_it_is_a_second_witness(
    shape: Callable[[int], SimFabric], seed: int, newer: bool
) -> None:
    fabric = without_port_guids(shape(seed))
    alone = inferred(*swept(fabric, 5))
    both = inferred(*swept(fabric, 5), managed(fabric, 9 if newer else 1))
    assert {link.sources for link in both.links} == {("ibnetdiscover", "ufm")}
    assert replace(both, links=(), hypernodes=()) == replace(alone, links=(), hypernodes=())
    assert [replace(h, conditions=()) for h in both.hypernodes] == [
        replace(h, conditions=()) for h in alone.hypernodes
    ]


def moved(fabric: SimFabric) -> tuple[SimFabric, Cable, Cable]:
    """The first host's cable on the first free port of the last leaf."""
    old = fabric.cables[0]
    leaf = [x for x in fabric.switches if x.level == 1][-1]
    new = old._replace(b=leaf.guid, b_port=leaf.port_count)
    return replace(fabric, cables=(new, *fabric.cables[1:])), old, new


@pytest.mark.parametrize("ufm_at", [1, 9])
def test_the_agent_that_swept_is_believed(ufm_at: int) -> None:
    fabric = without_port_guids(clos2(3, 4, 2))
    now, _, _ = moved(fabric)
    found = inferred(*swept(now, 5), managed(fabric, ufm_at))
    alone = inferred(*swept(now, 5))
    assert tiers(found) == tiers(alone)
    (told,) = [x for x in found.anomalies if x.kind == "SourcesDisagree"]
    assert told.sources == ("ufm",)
    assert "which a sweep of these devices lacks" in told.message
    assert len(found.links) == len(alone.links)


def test_what_no_sweep_reached_is_the_managers_to_tell() -> None:
    """A plane that no agent sweeps."""
    fabric = without_port_guids(rail_optimised(2, 4, 2, 2))
    first, second = swept(fabric)
    found = inferred(first, managed(fabric))
    assert tiers(found) == truth(fabric)
    assert {link.sources for link in found.links} == {("ibnetdiscover", "ufm"), ("ufm",)}
    assert not found.anomalies
    partial = inferred(replace(second, partial=True), first, managed(fabric))
    assert not partial.anomalies


def test_an_agent_tells_the_node_guid() -> None:
    fabric = without_port_guids(clos2(2, 3, 2))
    fabric = replace(
        fabric, adapters=tuple(replace(x, description="MT4129 ConnectX7") for x in fabric.adapters)
    )
    agents = {
        x.host: (
            InfinibandPort(
                x.device, 1, x.guid, x.port_guid, x.guid, "ACTIVE", "LinkUp", 200.0, 1, 1, "", "InfiniBand"
            ),
        )
        for x in fabric.adapters
    }
    found = inferred(managed(fabric), agents=FabricInputs(infiniband=agents))
    assert tiers(found) == truth(fabric)
    assert {x.id for x in found.adapters} == {f"{x.guid:016x}" for x in fabric.adapters}

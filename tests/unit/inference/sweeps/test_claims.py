"""Which sweeps count: tables of honest and false ones."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hyperscout_formats.facts.facts import InfinibandPort
from hyperscout_formats.infiniband.ibnetdiscover import CA, SWITCH, parse
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions, SweepSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_inference.sweeps.claims import SweepClaim, SweepVerdict, Witnesses, judge_sweeps
from hyperscout_runtime.units import NS
from hyperscout_sim.fabric.fabric import SimAdapter, SimFabric
from hyperscout_sim.fabric.shapes import clos2
from hyperscout_sim.readings.sweep_text import sweep_text
from hyperscout_sim.readings.sysfs import port_facts
from hyperscout_topology.topology import Topology
from support.real import ROOT

PAGE = ROOT / "docs/probes/ibnetdiscover.md"
FABRIC = clos2(leaves=2, hosts_per_leaf=4, spines=2)
HOSTS = FABRIC.hosts
ADAPTER = {x.host: x for x in FABRIC.adapters}
CABLE = {c.a: c for c in FABRIC.cables}
AGENTS = {host: (port_facts(x, CABLE[x.guid]),) for host, x in ADAPTER.items()}
OPTIONS = InferOptions(cluster_nodes=frozenset(HOSTS))
INVENTED = SimAdapter(0x66660000, 0x66660001, "liar", "mlx5_0", "liar mlx5_0")


def from_host(fabric: SimFabric, host: str = HOSTS[0]) -> SweepClaim:
    adapter = next(x for x in fabric.adapters if x.host == host)
    return SweepClaim(host, adapter.device, adapter.port_guid, parse(sweep_text(fabric, adapter.guid)))


def infer_sweep(claim: SweepClaim | SweepVerdict) -> Topology:
    return infer(FabricInputs(sweeps=(SweepSeen(claim.sweep),), infiniband=AGENTS), OPTIONS)


RECORD = infer_sweep(from_host(FABRIC))


def judged(
    *claims: SweepClaim,
    alone: Sequence[tuple[str, str]] = (),
    agents: Mapping[str, tuple[InfinibandPort, ...]] = AGENTS,
    silent: Sequence[str] = (),
    record: Topology | None = RECORD,
) -> list[SweepVerdict]:
    witnesses = Witnesses(agents, agents.keys() - set(silent), {}, alone)
    return judge_sweeps(claims, record, witnesses)


def counts(*claims: SweepClaim, **more: Any) -> list[str]:
    return [x.counts for x in judged(*claims, **more)]


def permuted(fabric: SimFabric, order: Sequence[int]) -> SimFabric:
    """The i-th host is on the cable of the host `order[i]`."""
    mine = [CABLE[ADAPTER[host].guid] for host in HOSTS]
    new = {c: c._replace(b=mine[j].b, b_port=mine[j].b_port) for c, j in zip(mine, order, strict=True)}
    return replace(fabric, cables=tuple(new.get(c, c) for c in fabric.cables))


def with_invented(fabric: SimFabric) -> SimFabric:
    leaf = fabric.switches[0]
    cable = fabric.cables[0]._replace(a=INVENTED.guid, a_port=1, b=leaf.guid, b_port=leaf.port_count)
    return replace(fabric, adapters=(*fabric.adapters, INVENTED), cables=(*fabric.cables, cable))


WITH_LIAR = {**AGENTS, "liar": (replace(port_facts(INVENTED, None), state="ACTIVE"),)}
SWAPPED = permuted(FABRIC, [4, 5, 6, 7, 0, 1, 2, 3])
ONE_MOVED = permuted(FABRIC, [4, 1, 2, 3, 0, 5, 6, 7])


def test_a_sweep_without_its_own_port_does_not_count() -> None:
    (found,) = judged(replace(from_host(FABRIC), port_guid=0x77))
    assert found.counts == "nothing"
    assert found.anomaly is not None
    assert found.anomaly.subject.name == HOSTS[0]
    assert "does not contain the port" in found.anomaly.message
    assert f"`{found.reason}`" in PAGE.read_text()


def kept(found: SweepVerdict) -> bool:
    """What counts of the sweep leaves the picture as it is."""
    inputs = FabricInputs(sweeps=(SweepSeen(found.sweep),), infiniband=AGENTS)
    again = infer(inputs, OPTIONS, RECORD)
    return again.hypernodes == RECORD.hypernodes and list(again.links) == list(RECORD.links)


def test_an_unchanged_fabric_counts_at_once_and_a_moved_cable_waits_without_an_accusation() -> None:
    assert counts(from_host(FABRIC)) == ["whole"]
    (found,) = judged(from_host(ONE_MOVED))
    assert (found.counts, found.anomaly) == ("reduced", None)
    counted = "it changes 2 cables, which no sweep of another node confirms"
    cables = "leaf-02/p1 -- node-0005 mlx5_0/p1, leaf-01/p1 -- node-0001 mlx5_0/p1"
    assert found.reason == f"{counted}: {cables}"
    assert f"`{counted}: CABLE, CABLE`" in PAGE.read_text()
    assert kept(found)
    assert counts(from_host(ONE_MOVED), from_host(ONE_MOVED, HOSTS[5])) == ["whole", "whole"]


def test_each_cable_is_confirmed_by_itself() -> None:
    """Meanwhile another cable was moved."""
    newer = permuted(FABRIC, [4, 5, 2, 3, 0, 1, 6, 7])
    (found, older) = judged(from_host(newer), from_host(ONE_MOVED, HOSTS[5]))
    assert found.counts == "reduced"
    assert "it changes 2 cables" in found.reason
    assert older.counts == "whole"


def test_no_host_is_lost_between_confirmed_and_kept_cables() -> None:
    """Three hosts of a leaf changed their ports. Of the older sweep only one of these cables is the same."""
    cycle = permuted(FABRIC, [1, 2, 0, 3, 4, 5, 6, 7])
    found, _ = judged(from_host(cycle), from_host(without(cycle, ADAPTER[HOSTS[1]].guid), HOSTS[5]))
    assert found.counts == "reduced"
    assert found.agreeing == (1,)
    assert kept(found)


def without(fabric: SimFabric, guid: int) -> SimFabric:
    return replace(fabric, cables=tuple(c for c in fabric.cables if guid not in (c.a, c.b)))


def test_a_switch_that_a_sweep_lacks_stays_until_another_sweep_lacks_it() -> None:
    spine = next(x.guid for x in FABRIC.switches if x.level == 2)
    cut = without(FABRIC, spine)
    (found,) = judged(from_host(cut))
    assert (found.counts, kept(found)) == ("reduced", True)
    assert counts(from_host(cut), from_host(cut, HOSTS[5])) == ["whole", "whole"]


@pytest.mark.parametrize("description", ["{}", "MF0;{}:MQM8700/U1", "MF0;spine:MQM8700/U1"])
def test_devices_that_stay_keep_their_names(description: str) -> None:
    """Also switches of one name."""
    switches = tuple(replace(x, description=description.format(x.name)) for x in FABRIC.switches)
    fabric = replace(FABRIC, switches=switches)
    record = infer_sweep(from_host(fabric))
    spine = next(x.guid for x in FABRIC.switches if x.level == 2)
    cut = without(without(fabric, spine), ADAPTER[HOSTS[1]].guid)
    (found,) = judged(from_host(cut), record=record)
    assert found.counts == "reduced"
    assert infer_sweep(found).switches == record.switches
    assert infer_sweep(found).adapters == record.adapters


def test_new_cables_between_switches_wait() -> None:
    one, other = FABRIC.switches[:2]
    cable = FABRIC.cables[0]._replace(a=one.guid, a_port=38, b=other.guid, b_port=38)
    more = replace(FABRIC, cables=(*FABRIC.cables, cable))
    (found,) = judged(from_host(more))
    assert (found.counts, kept(found)) == ("reduced", True)
    assert found.reason.endswith(f": {one.name}/p38 -- {other.name}/p38")
    assert counts(from_host(more), from_host(more, HOSTS[5])) == ["whole", "whole"]


def named_after(host: str, fabric: SimFabric = FABRIC) -> SimFabric:
    """An invented adapter of this host is on the last leaf."""
    leaf = [x for x in fabric.switches if x.level == 1][-1]
    own = SimAdapter(0x77770000, 0x77770001, host, "mlx5_9", f"{host} mlx5_9")
    cable = fabric.cables[0]._replace(a=own.guid, a_port=1, b=leaf.guid, b_port=leaf.port_count)
    return replace(fabric, adapters=(*fabric.adapters, own), cables=(*fabric.cables, cable))


def test_new_adapters_of_a_node_wait_while_its_agent_does_not_report_them() -> None:
    victim = HOSTS[1]
    (found,) = judged(from_host(named_after(victim)))
    assert (found.counts, kept(found)) == ("reduced", True)
    (found,) = judged(from_host(named_after(victim)), record=None)
    assert (found.counts, found.is_first) == ("reduced", True), "also in a fabric that was never published"
    (found,) = judged(from_host(named_after(victim)), alone=[(HOSTS[0], "mlx5_0")])
    assert found.counts == "reduced", "the agent contradicts it"
    assert counts(from_host(named_after(victim)), silent=[victim]) == ["reduced"]
    assert counts(from_host(named_after(victim)), silent=[victim], alone=[(HOSTS[0], "mlx5_0")]) == ["whole"]
    assert counts(from_host(named_after("new"))) == ["reduced"], "it has no agent"
    assert counts(from_host(named_after("new")), from_host(named_after("new"), HOSTS[5])) == ["whole"] * 2
    new = named_after(victim).adapters[-1]
    port = replace(port_facts(new, None), state="ACTIVE")
    agents = {**AGENTS, victim: (*AGENTS[victim], port)}
    assert counts(from_host(named_after(victim)), agents=agents) == ["whole"]


def test_a_port_with_two_cables_is_moved() -> None:
    """Inference would believe the cable that both of its ends show. The published one has the lower GUID."""
    old, other = sorted((CABLE[ADAPTER[host].guid] for host in (HOSTS[0], HOSTS[4])), key=lambda c: c.b)
    far = other.b
    new = old._replace(b=far, b_port=next(x.port_count for x in FABRIC.switches if x.guid == far))
    claim = from_host(replace(FABRIC, cables=(*(c for c in FABRIC.cables if c != old), new)), HOSTS[5])
    at = {guid: i for i, guid in enumerate(claim.sweep.guid.tolist())}
    more = {"device": at[old.b], "port": old.b_port, "peer": at[old.a], "peer_port": old.a_port}
    more |= dict.fromkeys(("port_guid", "rate_gbps", "width", "line"), 0)
    column = {name: getattr(claim.sweep, name) for name in more}
    two = {
        name: np.concatenate([column[name], np.array([value], column[name].dtype)])
        for name, value in more.items()
    }
    (found,) = judged(replace(claim, sweep=replace(claim.sweep, **two)))
    assert found.counts == "reduced"
    assert kept(found)


def test_devices_keep_their_published_kind_until_another_sweep_shows_the_other() -> None:
    claim = from_host(FABRIC)
    (leaf, *_) = np.flatnonzero(claim.sweep.kind == SWITCH).tolist()
    kinds = claim.sweep.kind.copy()
    kinds[leaf] = CA
    false = replace(claim, sweep=replace(claim.sweep, kind=kinds))
    (found,) = judged(false)
    assert (found.counts, found.sweep.kind[leaf]) == ("whole", SWITCH)
    assert found.reason == "it shows 1 device as another kind than published"
    assert f"`{found.reason}`" in PAGE.read_text()
    again = from_host(FABRIC, HOSTS[5])
    kinds = again.sweep.kind.copy()
    kinds[again.sweep.guid == claim.sweep.guid[leaf]] = CA
    found, _ = judged(false, replace(again, sweep=replace(again.sweep, kind=kinds)))
    assert (found.reason, found.sweep.kind[leaf]) == ("", CA)


def test_wholesale_changes_wait_for_the_sweep_of_another_node() -> None:
    (found,) = judged(from_host(SWAPPED))
    assert found.counts == "reduced"
    assert found.anomaly is not None
    assert re.search(r": [^,]+, [^,]+ and \d+ more$", found.reason)
    assert kept(found)
    assert counts(from_host(SWAPPED), from_host(SWAPPED, HOSTS[5])) == ["whole", "whole"]
    assert counts(from_host(SWAPPED), from_host(FABRIC, HOSTS[5])) == ["reduced", "whole"]
    assert counts(from_host(SWAPPED), alone=[(HOSTS[0], "mlx5_0")]) == ["whole"]


def test_what_is_not_disputed_counts_in_a_wholesale_change() -> None:
    """A new host with an agent is in the sweep that swaps others."""
    (found,) = judged(from_host(with_invented(SWAPPED)), agents=WITH_LIAR)
    assert found.counts == "reduced"
    assert INVENTED.guid in found.sweep.guid[found.sweep.device].tolist()


def test_a_provisional_sweep_of_a_published_fabric_does_not_count_alone() -> None:
    claim = from_host(with_invented(SWAPPED), "liar")
    assert counts(claim, from_host(FABRIC)) == ["nothing", "whole"]
    assert counts(claim) == ["nothing"]
    newer = from_host(with_invented(FABRIC), "liar")
    (found, _) = judged(newer, from_host(FABRIC))
    assert (found.counts, found.anomaly) == ("nothing", None), "the fabric may have grown"
    assert counts(newer, from_host(with_invented(FABRIC))) == ["whole", "whole"]


def test_a_provisional_sweep_without_changes_waits_without_a_count() -> None:
    (found,) = judged(replace(from_host(FABRIC), node="new"))
    assert (found.counts, found.anomaly) == ("nothing", None)
    assert found.reason == "its port is not confirmed yet, so it waits for the sweep of a second node"
    assert f"`{found.reason}`" in PAGE.read_text()


def test_a_port_under_another_guid_is_provisional() -> None:
    false = replace(ADAPTER[HOSTS[5]], port_guid=0x77)
    fabric = replace(ONE_MOVED, adapters=tuple(false if x.host == false.host else x for x in FABRIC.adapters))
    assert counts(from_host(fabric, HOSTS[5]), from_host(FABRIC)) == ["nothing", "whole"]


def test_a_new_fabric_counts_at_once() -> None:
    other = clos2(leaves=2, hosts_per_leaf=2, spines=1, seed=9)
    shift = 1 << 60
    other = replace(
        other,
        switches=tuple(replace(x, guid=x.guid ^ shift) for x in other.switches),
        adapters=tuple(
            SimAdapter(x.guid ^ shift, x.port_guid ^ shift, f"b-{x.host}", x.device, f"b-{x.description}")
            for x in other.adapters
        ),
        cables=tuple(c._replace(a=c.a ^ shift, b=c.b ^ shift) for c in other.cables),
    )
    assert counts(from_host(other, other.hosts[0]), from_host(FABRIC)) == ["whole", "whole"]
    (found,) = judged(from_host(FABRIC), record=None)
    assert (found.counts, found.is_first) == ("whole", True)
    both = judged(from_host(FABRIC), from_host(FABRIC, HOSTS[1]), record=None)
    assert [(found.counts, found.is_first) for found in both] == [("whole", False)] * 2


def test_a_new_host_with_an_agent_counts_at_once() -> None:
    assert counts(from_host(with_invented(FABRIC)), agents=WITH_LIAR) == ["whole"]


def test_hosts_that_a_sweep_lacks_stay_unless_their_agents_report_no_link() -> None:
    half = {ADAPTER[host].guid for host in HOSTS[4:]}
    cut = replace(FABRIC, cables=tuple(c for c in FABRIC.cables if c.a not in half))
    assert counts(from_host(cut)) == ["reduced"]
    down = {host: (replace(ports[0], state="DOWN"),) for host, ports in AGENTS.items()}
    assert counts(from_host(cut), agents=down) == ["whole"]
    assert counts(from_host(cut), silent=HOSTS[4:]) == ["reduced"]
    assert counts(from_host(cut), from_host(cut, HOSTS[1])) == ["whole", "whole"]


def partial(claim: SweepClaim) -> SweepClaim:
    """It may lack its own port."""
    return replace(claim, port_guid=0, is_partial=True)


def test_a_partial_sweep_is_judged_by_the_cables_that_it_shows() -> None:
    half = {ADAPTER[host].guid for host in HOSTS[4:]}
    cut = replace(FABRIC, cables=tuple(c for c in FABRIC.cables if c.a not in half))
    assert counts(partial(from_host(cut))) == ["whole"]
    known = replace(from_host(SWAPPED), is_partial=True)
    assert counts(known) == ["reduced"]
    assert counts(known, replace(from_host(SWAPPED, HOSTS[5]), is_partial=True)) == ["whole", "whole"]
    assert counts(partial(known), from_host(FABRIC, HOSTS[5])) == ["nothing", "whole"]
    assert counts(from_host(cut), partial(from_host(cut, HOSTS[1]))) == ["reduced", "whole"]
    moved = {c.a for c in SWAPPED.cables} - half
    rest = replace(SWAPPED, cables=tuple(c for c in SWAPPED.cables if c.a not in {*moved, *half}))
    assert counts(from_host(SWAPPED), partial(from_host(rest, HOSTS[5]))) == ["reduced", "whole"]


@pytest.mark.parametrize(("after_s", "counted"), [(-11, "reduced"), (-9, "whole"), (5, "whole")])
def test_cables_whose_ports_came_up_after_the_sweep_are_not_disputed(after_s: int, counted: str) -> None:
    """It was under way, and lacks more of them than a sweep may without an accusation."""
    gone = [CABLE[ADAPTER[host].guid] for host in HOSTS[4:]]
    cut = replace(FABRIC, cables=tuple(c for c in FABRIC.cables if c not in gone))
    at_ns = 100 * NS
    up = {host: {(c.a, c.a_port): at_ns + after_s * NS} for host, c in zip(HOSTS[4:], gone, strict=True)}
    witnesses = Witnesses(AGENTS, AGENTS.keys(), {}, (), up)
    (found,) = judge_sweeps([replace(from_host(cut), observed_at_ns=at_ns)], RECORD, witnesses)
    assert found.counts == counted
    assert (found.anomaly is not None) is (counted == "reduced")
    of_others = {HOSTS[0]: {end: ns for ports in up.values() for end, ns in ports.items()}}
    witnesses = replace(witnesses, up_ns=of_others)
    (found,) = judge_sweeps([replace(from_host(cut), observed_at_ns=at_ns)], RECORD, witnesses)
    assert found.counts == "reduced", "one node cannot say so of others' ports"


def test_a_sweep_from_before_a_cable_went_out_is_not_disputed() -> None:
    """Inference leaves the cable out by the newer report of its own agent, not by that of another one."""
    cable = CABLE[ADAPTER[HOSTS[3]].guid]
    cut = replace(FABRIC, cables=tuple(c for c in FABRIC.cables if c != cable))
    down = AGENTS | {HOSTS[3]: tuple(replace(x, state="DOWN") for x in AGENTS[HOSTS[3]])}
    record = infer(FabricInputs(sweeps=(SweepSeen(from_host(cut).sweep),), infiniband=down), OPTIONS, RECORD)
    claim = replace(from_host(FABRIC), observed_at_ns=100 * NS)
    for at_ns, counted in (
        ({HOSTS[3]: 101 * NS}, "whole"),
        ({HOSTS[3]: 99 * NS}, "reduced"),
        ({}, "reduced"),
    ):
        (found,) = judge_sweeps([claim], record, Witnesses(down, down.keys(), {}, at_ns=at_ns))
        assert found.counts == counted
    at_ns = {HOSTS[3]: 101 * NS}
    (found,) = judge_sweeps([claim], RECORD, Witnesses(down, down.keys(), {}, at_ns=at_ns))
    assert found.counts == "whole", "the record still has the cable"
    moved = replace(from_host(ONE_MOVED), observed_at_ns=100 * NS)
    (found,) = judge_sweeps([moved], record, Witnesses(down, down.keys(), {}, at_ns=at_ns))
    assert found.counts == "reduced"


def test_the_port_of_a_missing_cable_is_known_when_it_is_back() -> None:
    """Its adapter is in no published cable meanwhile."""
    cable = CABLE[ADAPTER[HOSTS[0]].guid]
    cut = replace(FABRIC, cables=tuple(c for c in FABRIC.cables if c != cable))
    down = AGENTS | {HOSTS[0]: tuple(replace(x, state="DOWN") for x in AGENTS[HOSTS[0]])}
    inputs = FabricInputs(sweeps=(SweepSeen(from_host(cut, HOSTS[1]).sweep),), infiniband=down)
    record = infer(inputs, OPTIONS, RECORD)
    assert f"{cable.a:016x}" not in {end for x in record.links for end in (x.a_device, x.b_device)}
    (found,) = judged(from_host(FABRIC), record=record)
    assert (found.counts, found.is_known, found.anomaly) == ("whole", True, None)
    (found,) = judged(replace(from_host(FABRIC), node=HOSTS[1]), record=record)
    assert not found.is_known, "it is the port of another node"
    elsewhere = cable._replace(b=CABLE[ADAPTER[HOSTS[-1]].guid].b, b_port=40)
    moved = replace(FABRIC, cables=(*cut.cables, elsewhere))
    (found, _) = judged(from_host(moved), from_host(cut, HOSTS[1]), record=record)
    assert (found.counts, found.is_known) == ("nothing", False), "it may be in another port by its own word"

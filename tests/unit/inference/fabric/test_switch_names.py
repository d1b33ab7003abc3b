"""Which name a switch has where its neighbours hear different ones."""

from collections.abc import Callable, Collection
from dataclasses import replace

import pytest
from hyperscout_formats.facts.facts import LldpPort
from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_inference.hierarchy import infer
from hyperscout_topology.topology import Topology
from support.inference import disagreements
from support.switched import Wiring, chassis, clos

CABLES = clos(units=2, hosts=3, spines=2, rails=1)
HOSTS = [f"h{unit}{i}" for unit in (1, 2) for i in (1, 2, 3)]
LEAVES_AND_HOSTS = Wiring(CABLES, agents=[*HOSTS, "leaf-1a", "leaf-2a"])
HOSTS_ONLY = Wiring([text for text in CABLES if "spine" not in text], agents=HOSTS)


def calling(inputs: FabricInputs, reporters: Collection[str], switch: str, name: str) -> FabricInputs:
    """These nodes and switches hear another name of a switch."""

    def heard(port: LldpPort) -> LldpPort:
        return replace(
            port,
            neighbours=tuple(
                replace(n, system_name=name) if n.chassis_id == chassis(switch) else n
                for n in port.neighbours
            ),
        )

    return replace(
        inputs,
        lldp={k: tuple(map(heard, v)) if k in reporters else v for k, v in inputs.lldp.items()},
        switch_ports={
            k: tuple(map(heard, v)) if k.removeprefix("switch/") in reporters else v  # type: ignore[type-var]
            for k, v in inputs.switch_ports.items()
        },
    )


def names(topology: Topology) -> dict[str, str]:
    return {s.id: s.name for s in topology.switches}


@pytest.mark.parametrize("known", [False, True], ids=["first", "published before"])
@pytest.mark.parametrize("name", ["zzz", "aaa", "leaf-2a"])
def test_one_false_report_renames_no_switch(name: str, known: bool) -> None:
    inputs = HOSTS_ONLY.inputs()
    before = infer(inputs)
    found = infer(calling(inputs, ["h11"], "leaf-1a", name), previous=before if known else None)
    assert names(found) == names(before)
    (named,) = disagreements(found)
    assert (named.subject.name, named.subject.port) == ("h11", "eth0")
    assert named.message == (
        f"h11/eth0 reports leaf-1a ({chassis('leaf-1a')}) as {name}: most of its neighbours, or an earlier "
        "topology, name it otherwise"
    )


def test_of_two_neighbours_the_earlier_name_decides() -> None:
    inputs = HOSTS_ONLY.without("leaf-1a/swp3 h13/eth0").inputs()
    before = infer(inputs)
    for liar in ("h11", "h12"):
        found = infer(calling(inputs, [liar], "leaf-1a", "zzz"), previous=before)
        assert names(found) == names(before)
        assert [x.subject.name for x in disagreements(found)] == [liar]


def test_a_renamed_switch_has_its_new_name_as_soon_as_most_neighbours_hear_it() -> None:
    inputs = HOSTS_ONLY.inputs()
    before = infer(inputs)
    two = infer(calling(inputs, ["h11", "h13"], "leaf-1a", "aaa"), previous=before)
    assert names(two)[chassis("leaf-1a")] == "aaa"
    assert [x.subject.name for x in disagreements(two)] == ["h12"]
    all_three = infer(calling(inputs, ["h11", "h12", "h13"], "leaf-1a", "aaa"), previous=two)
    assert names(all_three)[chassis("leaf-1a")] == "aaa"
    assert disagreements(all_three) == []
    assert {h.name for h in all_three.hypernodes} == {h.name for h in before.hypernodes}


def test_a_stale_neighbour_has_no_vote_beside_a_current_one() -> None:
    inputs = replace(HOSTS_ONLY.inputs(), silent=frozenset({"h12", "h13"}))
    found = infer(calling(inputs, ["h11"], "leaf-1a", "aaa"), previous=infer(inputs))
    assert names(found)[chassis("leaf-1a")] == "aaa"
    assert disagreements(found) == []


def test_a_switch_that_reports_itself_has_its_own_name() -> None:
    inputs = LEAVES_AND_HOSTS.inputs()
    found = infer(calling(inputs, HOSTS, "leaf-1a", "zzz"))
    assert names(found) == names(infer(inputs))
    assert disagreements(found) == []


def test_each_neighbour_has_one_vote_however_many_cables() -> None:
    more = [f"leaf-1a/swp{20 + i} h11/eth{i}" for i in range(1, 6)]
    inputs = replace(HOSTS_ONLY, cables=[*HOSTS_ONLY.cables, *more]).inputs()
    found = infer(calling(inputs, ["h11"], "leaf-1a", "zzz"))
    assert names(found)[chassis("leaf-1a")] == "leaf-1a"


def test_a_switch_votes_like_a_host() -> None:
    inputs = LEAVES_AND_HOSTS.inputs()
    before = infer(inputs)
    found = infer(calling(inputs, ["leaf-2a"], "spine-1", "zzz"), previous=before)
    assert names(found) == names(before)
    assert [x.subject.name for x in disagreements(found)] == ["leaf-2a"]


def test_a_switch_that_takes_the_name_of_another_is_told_apart_and_the_other_keeps_it() -> None:
    """A host invents a switch on its second port."""
    inputs = HOSTS_ONLY.inputs()
    before = infer(inputs)
    (real,) = inputs.lldp["h11"]
    heard = replace(real.neighbours[0], chassis_id="00:00:00:00:00:01", system_name="leaf-2a")
    lie = replace(real, interface="eth7", mac="", neighbours=(heard,))
    found = infer(replace(inputs, lldp={**inputs.lldp, "h11": (real, lie)}), previous=before)
    assert names(found) == {**names(before), "00:00:00:00:00:01": "leaf-2a-000001"}
    assert [x.subject.device for x in disagreements(found)] == ["00:00:00:00:00:01"]
    assert {h.name: h.nodes for h in found.hypernodes if "h11" not in h.nodes} == {
        h.name: h.nodes for h in before.hypernodes if "h11" not in h.nodes
    }


@pytest.mark.parametrize("order", [sorted, lambda x: sorted(x, reverse=True)], ids=["forth", "back"])
def test_the_order_of_evidence_does_not_matter(order: Callable[[Collection[str]], list[str]]) -> None:
    inputs = calling(HOSTS_ONLY.inputs(), ["h12"], "leaf-1a", "zzz")
    found = infer(replace(inputs, lldp={host: inputs.lldp[host] for host in order(inputs.lldp)}))
    assert names(found) == names(infer(inputs))
    assert found.anomalies == infer(inputs).anomalies

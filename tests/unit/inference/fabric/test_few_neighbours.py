"""How many neighbours of one switch agent count: tens behind a port do, thousands of crowded ports do not."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hyperscout_formats.facts.facts import LldpNeighbour, SwitchPort
from hyperscout_inference.ethernet.few_neighbours import MOST, too_many_neighbours, with_few_neighbours
from hyperscout_inference.fabric import few_findings
from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_inference.hierarchy import infer
from support.inference import disagreements
from support.switched import Wiring, clos, domains

HONEST = Wiring(clos()).inputs()
BAD = "switch/leaf-1a"
OWN = HONEST.switch_ports[BAD]


def address(i: int, first: int = 0x0A) -> str:
    return f"{first:02x}:00:" + ":".join(f"{byte:02x}" for byte in i.to_bytes(4, "big"))


def station(i: int, first: int = 0x0A) -> LldpNeighbour:
    own = address(i, first)
    return LldpNeighbour("mac", own, "mac", own, 120, system_name=f"vm{i}", capabilities=("Station",))


def switch(i: int) -> LldpNeighbour:
    return LldpNeighbour("mac", address(i), "ifname", "swp1", 120, f"x{i}", capabilities=("Bridge", "Router"))


def crowded(ports: int, each: Sequence[LldpNeighbour]) -> tuple[SwitchPort, ...]:
    """More ports of the bad switch, with as many neighbours as `each` has, all of them different."""
    return tuple(
        replace(
            OWN[0],
            interface=f"e{i}",
            port_id=f"e{i}",
            mac=address(i, 0x0E),
            neighbours=tuple(
                replace(
                    n, chassis_id=address(i * len(each) + j), port_id=n.port_id.replace("swp1", f"swp{j}")
                )
                for j, n in enumerate(each)
            ),
        )
        for i in range(ports)
    )


def with_ports(*more: SwitchPort) -> FabricInputs:
    return replace(HONEST, switch_ports={**HONEST.switch_ports, BAD: (*OWN, *more)})


def total(inputs: FabricInputs) -> int:
    return sum(len(port.neighbours) for port in inputs.switch_ports[BAD])


def test_tens_of_virtual_machines_behind_each_port_of_a_leaf_all_count() -> None:
    inputs = with_ports(*crowded(60, [station(j) for j in range(64)]))
    assert total(inputs) > 3800
    assert with_few_neighbours(inputs) == (inputs, {})


@pytest.mark.parametrize("kind", [switch, station])
def test_thousands_of_crowded_ports_count_with_one_neighbour_each(kind) -> None:  # type: ignore[no-untyped-def]
    inputs = with_ports(*crowded(4000, [kind(j) for j in range(3)]))
    reduced, reported = with_few_neighbours(inputs)
    assert total(reduced) <= MOST
    assert all(len(port.neighbours) <= 1 for port in reduced.switch_ports[BAD])
    assert reduced.switch_ports[BAD][: len(OWN)] == OWN
    assert reported == {BAD: total(inputs)}
    (told,) = too_many_neighbours(reported, reduced)
    assert told.message == (
        f"{BAD} reports {total(inputs)} neighbours, of which at most {MOST} count, a few of each port: "
        "look for a bridge or a loop"
    )
    assert (told.subject.device, told.subject.name) == (OWN[0].chassis_id, "leaf-1a")


def test_a_crowd_does_not_grow_the_topology_and_is_one_finding() -> None:
    before = infer(HONEST)
    found = infer(with_ports(*crowded(300, [switch(j) for j in range(35)])), previous=before)
    assert domains(found) == domains(before)
    assert len(found.links) <= len(before.links) + MOST
    assert sum(f"at most {MOST} count" in x.message for x in disagreements(found)) == 1


@pytest.mark.parametrize(
    ("ports", "heard", "left"), [(60, 70, 64), (200, 70, 16), (1000, 20, 4), (4000, 3, 1)]
)
def test_each_port_keeps_as_many_as_fit(ports: int, heard: int, left: int) -> None:
    reduced, _ = with_few_neighbours(with_ports(*crowded(ports, [station(0)] * heard)))
    assert {len(port.neighbours) for port in reduced.switch_ports[BAD][len(OWN) :]} == {left}
    assert total(reduced) <= MOST


def test_a_crowded_port_keeps_switches_then_the_addresses_of_nics() -> None:
    nic, machine = station(1, 0x04), station(0, 0x02)
    heard = (*(station(i) for i in range(70)), machine, nic, switch(999))
    ports = tuple(replace(OWN[0], interface=f"e{i}", port_id=f"e{i}", neighbours=heard) for i in range(300))
    reduced, _ = with_few_neighbours(with_ports(*ports))
    assert reduced.switch_ports[BAD][-1].neighbours[:3] == (switch(999), nic, machine)


def test_the_order_of_the_evidence_does_not_matter() -> None:
    ports = crowded(300, [station(j) for j in range(35)])
    random = Random(1)
    mixed = tuple(
        replace(port, neighbours=tuple(random.sample(port.neighbours, len(port.neighbours))))
        for port in ports
    )
    one, other = (with_few_neighbours(with_ports(*those)) for those in (ports, mixed))
    assert one == other


def test_a_stale_agent_is_bounded_without_a_finding() -> None:
    inputs = with_ports(*crowded(300, [station(j) for j in range(35)]))
    reduced, reported = with_few_neighbours(replace(inputs, silent=frozenset({BAD})))
    assert total(reduced) <= MOST
    assert too_many_neighbours(reported, reduced) == []


def test_an_agent_is_accused_at_its_own_switch() -> None:
    """It reports most of its neighbours under the chassis id of another switch."""
    other = HONEST.switch_ports["switch/leaf-2a"][0].chassis_id
    ports = crowded(300, [station(j) for j in range(35)])
    found = infer(with_ports(*(replace(port, chassis_id=other) for port in ports)))
    (told,) = (x for x in disagreements(found) if f"at most {MOST} count" in x.message)
    assert told.subject.device == OWN[0].chassis_id


def on_many_ports(*heard: LldpNeighbour) -> FabricInputs:
    """The bad switch hears these on each of 1,000 more ports."""
    return with_ports(*(replace(port, neighbours=heard) for port in crowded(1000, [])))


@pytest.mark.parametrize(
    ("heard", "wrong"),
    [
        pytest.param(
            HONEST.switch_ports["switch/leaf-2a"][0].neighbours,
            "that this switch reports lead to hosts that are on other cables",
            id="a host of another leaf",
        ),
        pytest.param(
            (switch(1), switch(2)), "of this switch lead to several neighbours each", id="two switches each"
        ),
    ],
)
def test_the_findings_of_a_switch_do_not_grow_with_its_false_ports(
    heard: Sequence[LldpNeighbour], wrong: str
) -> None:
    before = infer(HONEST)
    found = infer(on_many_ports(*heard), previous=before)
    assert domains(found) == domains(before)
    told = disagreements(found)
    assert len(told) <= 3 * (few_findings.MOST + 1)
    (more,) = (x for x in told if wrong in x.message)
    assert more.message.startswith(f"{1000 - few_findings.MOST} more cables {wrong}, the first at ")


def test_the_findings_about_ports_of_others_do_not_grow_with_the_false_cables() -> None:
    wide = Wiring(clos(units=6, hosts=25, spines=2, rails=1)).inputs()
    taken = [
        replace(OWN[0].neighbours[0], chassis_id=p.chassis_id, port_id=p.port_id, port_id_subtype="ifname")
        for reporter, ports in wide.switch_ports.items()
        if reporter.startswith("switch/leaf") and reporter != BAD
        for p in ports
    ]
    false = [
        replace(port, neighbours=(replace(heard, system_name="", capabilities=("Bridge",)),))
        for port, heard in zip(crowded(len(taken), []), taken, strict=True)
    ]
    assert len(false) > few_findings.MOST
    ports = {**wide.switch_ports, BAD: (*wide.switch_ports[BAD], *false)}
    told = disagreements(infer(replace(wide, switch_ports=ports), previous=infer(wide)))
    assert len(told) == few_findings.MOST + 1
    assert sum("more cables that this switch reports are contradicted" in x.message for x in told) == 1

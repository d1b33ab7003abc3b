"""Which switch a switch agent may report: the one that neighbours hear under the name in its certificate."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hyperscout_formats.facts.facts import SwitchPort
from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_inference.hierarchy import infer
from hyperscout_topology.topology import Topology
from support.inference import disagreements, tiers
from support.switched import Wiring, chassis, clos

PODS = [
    *clos(units=2, hosts=2, spines=2, rails=1),
    "leaf-3a/swp1 h31/eth0",
    "leaf-3a/swp2 h32/eth0",
    "leaf-3a/swp30 spine-3/swp1",
    "leaf-4a/swp1 h41/eth0",
    "leaf-4a/swp2 h42/eth0",
    "leaf-4a/swp30 spine-3/swp2",
]
WIRING = Wiring(PODS)
LIAR = "switch/leaf-1a"
OTHERS = ["leaf-3a", "leaf-4a", "spine-3"]
Ports = tuple[SwitchPort, ...]


def lying(inputs: FabricInputs, change: Callable[[Ports, Mapping[str, Ports]], Ports]) -> FabricInputs:
    ports = inputs.switch_ports
    return replace(inputs, switch_ports={**ports, LIAR: change(ports[LIAR], ports)})


def under(switch: str, ports: Ports) -> Ports:
    """The same ports under the chassis id and with the name of another switch."""
    return tuple(replace(x, chassis_id=chassis(switch), system_name=switch) for x in ports)


def others(topology: Topology) -> object:
    """Everything that is not about the domain of the liar."""
    return (
        [h for h in topology.hypernodes if h.tier == 1 and "h11" not in h.nodes],
        topology.switches,
        [x for x in topology.anomalies if x not in disagreements(topology)],
    )


@pytest.mark.parametrize("agents", ["all", "no agent of the victim", "hosts and the liar"])
@pytest.mark.parametrize("own_too", [True, False], ids=["beside its own", "alone"])
@pytest.mark.parametrize("known", [True, False], ids=["published before", "first"])
def test_ports_of_other_switches_do_not_count(agents: str, own_too: bool, known: bool) -> None:
    names = {text.partition("/")[0] for line in PODS for text in line.split()}
    speaking = {
        "all": names,
        "no agent of the victim": names - {"spine-3"},
        "hosts and the liar": {n for n in names if n.startswith("h")} | {"leaf-1a", "leaf-2a"},
    }[agents]
    honest = replace(WIRING, agents=sorted(speaking)).inputs()
    before = infer(honest)
    victims = OTHERS if agents != "hosts and the liar" else ["leaf-3a", "leaf-4a"]
    for victim in victims:

        def claims(mine: Ports, ports: Mapping[str, Ports], victim: str = victim) -> Ports:
            extra = under(victim, tuple(replace(x, interface=f"x{x.interface}") for x in mine))
            return (*mine, *extra) if own_too else extra

        found = infer(lying(honest, claims), previous=before if known else None)
        assert tiers(found)[0] == tiers(before)[0]
        (named,) = [x for x in disagreements(found) if x.subject.name == "leaf-1a"]
        assert (
            f"switch/leaf-1a reports ports of 1 other switch: {victim} ({chassis(victim)})" in named.message
        )
        if own_too:
            assert others(found) == others(before)
            assert tiers(found) == tiers(before)


def test_a_switch_whose_certificate_is_named_otherwise_reports() -> None:
    inputs = WIRING.inputs()
    renamed = {f"switch/rack-{i}": ports for i, ports in enumerate(inputs.switch_ports.values())}
    found = infer(replace(inputs, switch_ports=renamed))
    assert tiers(found) == tiers(infer(inputs))
    assert found.anomalies == ()


def test_a_fully_qualified_name_is_the_same_name() -> None:
    inputs = WIRING.inputs()
    renamed = {f"{name}.example.org": ports for name, ports in inputs.switch_ports.items()}
    assert infer(replace(inputs, switch_ports=renamed)).anomalies == ()


def test_a_replaced_board_reports_its_new_chassis_id() -> None:
    """The neighbours hear it first from the agent alone, then from themselves, each at another time."""
    before = infer(WIRING.inputs())
    old, new = chassis("leaf-1a"), "02:00:00:00:00:99"

    def swapped(inputs: FabricInputs, heard_by: set[str]) -> FabricInputs:
        def heard(ports: Ports) -> Ports:
            return tuple(
                replace(
                    x,
                    neighbours=tuple(
                        replace(n, chassis_id=new if n.chassis_id == old else n.chassis_id)
                        for n in x.neighbours
                    ),
                )
                for x in ports
            )

        return replace(
            inputs,
            lldp={k: heard(v) if k in heard_by else v for k, v in inputs.lldp.items()},  # type: ignore[arg-type]
            switch_ports={
                k: tuple(replace(x, chassis_id=new) for x in v)
                if k == LIAR
                else heard(v)
                if k.removeprefix("switch/") in heard_by
                else v
                for k, v in inputs.switch_ports.items()
            },
        )

    all_neighbours = {"h11", "h12", "spine-1", "spine-2"}
    after = infer(swapped(WIRING.inputs(), all_neighbours), previous=before)
    assert tiers(after) == tiers(before)
    assert disagreements(after) == []
    assert new in {s.id for s in after.switches}
    half = infer(swapped(WIRING.inputs(), {"h11"}), previous=before)
    again = infer(swapped(WIRING.inputs(), all_neighbours), previous=half)
    assert tiers(again) == tiers(before)
    assert disagreements(again) == []


def test_a_renamed_switch_whose_agent_is_renamed_too_reports() -> None:
    inputs = WIRING.inputs()
    before = infer(inputs)

    def heard(ports: Ports) -> Ports:
        return tuple(
            replace(
                x,
                neighbours=tuple(
                    replace(n, system_name="edge-7" if n.system_name == "leaf-1a" else n.system_name)
                    for n in x.neighbours
                ),
            )
            for x in ports
        )

    own = tuple(replace(x, system_name="edge-7") for x in inputs.switch_ports[LIAR])
    rest = {k: heard(v) for k, v in inputs.switch_ports.items() if k != LIAR}
    after = replace(
        inputs,
        lldp={k: heard(v) for k, v in inputs.lldp.items()},  # type: ignore[arg-type, misc]
        switch_ports={**rest, "switch/edge-7": own, LIAR: inputs.switch_ports[LIAR]},
        silent=frozenset({LIAR}),
    )
    found = infer(after, previous=before)
    assert tiers(found) == tiers(before)
    assert found.anomalies == ()
    assert {s.name for s in found.switches if s.id == chassis("leaf-1a")} == {"edge-7"}


def test_one_host_that_hears_the_name_of_an_agent_elsewhere_does_not_mute_it() -> None:
    wiring = replace(WIRING, agents=["h11", "h12", "h31", "leaf-1a", "spine-1", "spine-2"])
    inputs = wiring.inputs()
    renamed = {("switch/rack-9" if k == LIAR else k): v for k, v in inputs.switch_ports.items()}
    inputs = replace(inputs, switch_ports=renamed)
    before = infer(inputs)
    (port,) = inputs.lldp["h31"]
    lie = replace(port, neighbours=(replace(port.neighbours[0], system_name="rack-9"),))
    found = infer(replace(inputs, lldp={**inputs.lldp, "h31": (lie,)}), previous=before)
    assert list(found.links) == list(before.links)

"""The host's end of a cable that was never seen: its port is named where the host's own report shows it."""

from collections.abc import Collection
from dataclasses import replace

import pytest
from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric import shapes
from hyperscout_sim.readings.sysfs import port_facts
from hyperscout_topology.topology import Anomaly
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.inference import inputs_of
from support.switched import Port, Wiring, clos

# Two hosts in each unit: no port plan shows which port of the other host is meant. Rail 3 is on the leaf of
# rail 2.
UNITS = [text.replace("d/swp1", "c/swp3").replace("d/swp2", "c/swp4") for text in clos(2, 2, 0, 4)]
HOSTS = ("h11", "h12", "h21", "h22")
FIRST = "leaf-1a/swp1 h11/eth0"
SHARED = ("leaf-1c/swp1 h11/eth2", "leaf-1c/swp3 h11/eth3")
UNUSED = ("h11", "eno9")


def missing(inputs: FabricInputs) -> list[Anomaly]:
    return [x for x in infer(inputs).anomalies if x.kind == "MissingLink"]


def wiring(out: Collection[str] = (), dark: Collection[Port] = (), deaf: Collection[Port] = ()) -> Wiring:
    """`out`: cables that are not there, `deaf`: ports with carrier and without neighbours."""
    found = Wiring(UNITS, agents=HOSTS, deaf=deaf).without(*out)
    return replace(found, dark=[*found.dark, *dark])


@pytest.mark.parametrize(
    ("seen", "ports"),
    [
        pytest.param(wiring([FIRST]), ["eth0"], id="a rail of like hosts"),
        pytest.param(wiring([FIRST], [UNUSED]), ["eth0"], id="beside an unused interface"),
        pytest.param(wiring([], [UNUSED], [("h11", "eth0")]), [None], id="an unused interface alone"),
        pytest.param(wiring(SHARED), [None, None], id="which of two is on which port of a leaf"),
        pytest.param(
            wiring([SHARED[0]], [UNUSED], [("h11", "eth3")]), [None, None], id="which of two is meant"
        ),
        pytest.param(
            wiring([FIRST, "leaf-1b/swp1 h11/eth1"]), ["eth0", "eth1"], id="one on each of two leaves"
        ),
    ],
)
def test_ethernet(seen: Wiring, ports: list[str | None]) -> None:
    found = missing(seen.inputs())
    assert {x.subject.device for x in found} == {"h11"}
    assert [x.subject.port for x in found] == ports


@given(st.sets(st.sampled_from([text for text in UNITS if "spine" not in text]), max_size=5))
@examples(2)
def test_a_name_changes_no_accusation(out: set[str]) -> None:
    inputs = wiring(out, [UNUSED]).inputs()
    lit = {host: tuple(replace(x, carrier=True) for x in ports) for host, ports in inputs.lldp.items()}

    def unnamed(inputs: FabricInputs) -> list[tuple[str, str, object, float, str | None]]:
        found = infer(inputs).anomalies
        return [(x.kind, x.subject.device, x.peer, x.confidence, x.hypernode) for x in found]

    assert unnamed(inputs) == unnamed(replace(inputs, lldp=lit))
    for x in missing(inputs):
        assert x.subject.port is None or any(f"{x.subject.device}/{x.subject.port}" in text for text in out)


def test_infiniband() -> None:
    """Another port that is down, and that no like host uses, is not named."""
    fabric = shapes.rail_optimised(2, 2, 4, 2)
    host = fabric.hosts[0]
    first, *_ = fabric.adapters_of()[host]
    cables = tuple(x for x in fabric.cables if first.guid not in (x.a, x.b))
    down = port_facts(first, None)
    own = (down, replace(down, device="mlx5_9", node_guid=1, port_guid=2))
    for ports, names in ((own, [first.device]), (own[1:], [None])):
        found = missing(replace(inputs_of(replace(fabric, cables=cables)), infiniband={host: ports}))
        assert [x.subject.port for x in found] == names

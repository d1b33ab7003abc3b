"""Links slower than their peers: by speed on any fabric, by lanes on InfiniBand."""

from collections import Counter
from dataclasses import replace

import pytest
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import Cable, SimFabric
from support.inference import inferred
from support.switched import Wiring, chassis, clos

FABRIC = shapes.clos2(3, 8, 4)
HOSTS = FABRIC.node_map()
HOST_CABLE = next(cable for cable in FABRIC.cables if cable.a in HOSTS)
UPLINK = next(cable for cable in FABRIC.cables if cable.a not in HOSTS)


def with_rate(rate: str, *cables: Cable) -> SimFabric:
    new = tuple(x._replace(rate=rate) if x in cables else x for x in FABRIC.cables)
    return replace(FABRIC, cables=new)


@pytest.mark.parametrize(
    ("cable", "rate", "words"),
    [
        pytest.param(HOST_CABLE, "1xHDR", "runs at 50 Gb/s (1 lane of 4), its peers at 200 Gb/s", id="lanes"),
        pytest.param(UPLINK, "2xHDR", "runs at 100 Gb/s (2 lanes of 4), its peers at 200 Gb/s", id="some"),
        pytest.param(UPLINK, "4xEDR", "runs at 100 Gb/s, its peers at 200 Gb/s", id="speed"),
        pytest.param(HOST_CABLE, "1xEDR", "runs at 25 Gb/s (1 lane of 4), its peers at 200 Gb/s", id="both"),
    ],
)
def test_infiniband(cable: Cable, rate: str, words: str) -> None:
    topology = inferred(with_rate(rate, cable))
    (found,) = topology.anomalies
    assert (found.kind, found.message.partition(" runs ")[2]) == ("SlowLink", words.removeprefix("runs "))
    (degraded,) = (
        c for h in topology.hypernodes for c in h.conditions if (c.type, c.status) == ("Degraded", "True")
    )
    assert (degraded.reason, words in degraded.message) == ("SlowLinks", True)


@pytest.mark.parametrize("rate", ["4xHDR", "1xEDR", "2xFDR", "4x???", ""])
def test_links_have_the_speed_and_width_that_a_sweep_shows(rate: str) -> None:
    expected = {"4xHDR": (200.0, 4), "1xEDR": (25.0, 1), "2xFDR": (28.0, 2), "4x???": (0.0, 4), "": (0.0, 0)}
    found = inferred(with_rate(rate, UPLINK)).links
    others = [(200.0, 4)] * (len(FABRIC.cables) - 1)
    assert Counter((x.speed_gbps, x.width) for x in found) == Counter([*others, expected[rate]])


@pytest.mark.parametrize(
    ("mbps", "gbps"), [(100_000, 100.0), (10, 0.01), (2_500, 2.5), (0, 0.0), (2**32 - 1, 0.0)]
)
def test_links_have_the_speed_that_ports_report(mbps: int, gbps: float) -> None:
    wiring = replace(Wiring(clos(3, 4, 2, 2)), speeds_mbps={("leaf-1a", "swp31"): mbps})
    port = chassis("leaf-1a"), "swp31"
    links = infer(wiring.inputs()).links
    (found,) = (x for x in links if port in {(x.a_device, x.a_port), (x.b_device, x.b_port)})
    assert (found.speed_gbps, found.width) == (gbps, 0)


def test_many_equally_slow_cables_are_not_accused() -> None:
    slower = [cable for cable in FABRIC.cables if cable.a in HOSTS][:12]
    assert inferred(with_rate("1xHDR", *slower)).anomalies == ()


def test_an_uplink_on_ethernet() -> None:
    """Names that are hexadecimal are no GUIDs."""
    wiring = Wiring([x.replace("h1", "fa").replace("h2", "be") for x in clos(3, 4, 2, 2)])
    inputs = replace(wiring, speeds_mbps={("leaf-1a", "swp31"): 25_000}).inputs()
    (found,) = infer(inputs).anomalies
    assert found.message == "leaf-1a/swp31 to spine-1/swp1 runs at 25 Gb/s, its peers at 100 Gb/s"


@pytest.mark.parametrize("mbps", [2**32 - 1, 2**63 - 1])
def test_a_speed_that_cannot_be_is_unknown(mbps: int) -> None:
    """ethtool reports an unknown speed as 2**32 - 1."""
    wiring = Wiring(clos(3, 4, 2, 2))
    inputs = replace(wiring, speeds_mbps={("leaf-1a", "swp31"): mbps}).inputs()
    assert infer(inputs).anomalies == ()


@pytest.mark.parametrize(
    ("slow", "words"),
    [
        pytest.param(
            ["eth0"], ["h11/eth0 to leaf-1a/swp1 runs at 25 Gb/s, its peers at 100 Gb/s"], id="one-rail"
        ),
        pytest.param(
            ["eth0", "eth1"],
            [
                "h11/eth0 to leaf-1a/swp1 runs at 25 Gb/s, its peers at 100 Gb/s",
                "h11/eth1 to leaf-1b/swp1 runs at 25 Gb/s, its peers at 100 Gb/s",
            ],
            id="all-of-a-host",
        ),
    ],
)
def test_a_host_s_port_on_ethernet_is_slow_and_not_missing(slow: list[str], words: list[str]) -> None:
    wiring = Wiring(clos(2, 8, 2, 2))
    speeds = {("h11", interface): 25_000 for interface in slow}
    topology = infer(replace(wiring, speeds_mbps=speeds).inputs())
    assert sorted(x.message for x in topology.anomalies) == words
    assert {x.kind for x in topology.anomalies} == {"SlowLink"}
    assert [h.nodes for h in topology.hypernodes] == [h.nodes for h in infer(wiring.inputs()).hypernodes]


@pytest.mark.parametrize(
    ("cables", "mbps"),
    [
        pytest.param(
            [
                *(f"mgmt-1/swp{i} h1{i}/eth7" for i in range(1, 9)),
                "mgmt-1/swp20 h99/eth0",
                "leaf-1a/swp20 h99/eth5",
                "leaf-1b/swp20 h99/eth6",
            ],
            25_000,
            id="on-switches-of-their-own",
        ),
        pytest.param([f"leaf-1a/swp2{i} h1{i}/eth7" for i in range(1, 4)], 25_000, id="on-the-same-leaf"),
        pytest.param(["leaf-1a/swp20 h99/eth0"], 10_000, id="far-slower"),
    ],
)
def test_a_slow_port_of_another_purpose_stays_out(cables: list[str], mbps: int) -> None:
    """Storage, management and log-in nodes, some of it under names that compute elsewhere."""
    fast = ("eth5", "eth6")
    ends = (text.split()[1].partition("/") for text in cables)
    speeds = {(host, port): mbps for host, _, port in ends if port not in fast}
    inputs = Wiring([*clos(2, 8, 2, 2), *cables], speeds_mbps=speeds).inputs()
    assert not [x for x in infer(inputs).anomalies if x.kind == "SlowLink" or "mgmt" in x.message]

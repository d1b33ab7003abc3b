"""Facts that say the same are one object: a large cluster has millions of NVLinks, and few different ones."""

from dataclasses import replace

import pytest
from hyperscout.v1 import finding_pb2
from hyperscout_formats.facts.facts import (
    LatencyPort,
    LatencyResult,
    LatencySample,
    LldpNeighbour,
    LldpPort,
)
from hyperscout_formats.facts.shared_fields import one_number
from hyperscout_formats.facts.wire import lldp_from_proto, lldp_to_proto
from hyperscout_formats.facts.wire_measured import (
    gpu_from_proto,
    gpu_to_proto,
    latency_from_proto,
    latency_to_proto,
)
from hyperscout_sim.fabric.nvlink import dead_link, hgx_host


def test_links_and_peers_that_say_the_same_are_kept_once() -> None:
    hosts = [dead_link(hgx_host(name), 3, 5) for name in ("n1", "n2")]
    one, other = ([gpu_from_proto(gpu_to_proto(gpu)) for gpu in gpus] for gpus in hosts)
    assert [tuple(one), tuple(other)] == hosts
    links = [{id(x) for gpu in gpus for x in gpu.links} for gpus in (one, other)]
    assert links[0] == links[1]
    assert len(links[0]) == 18 + 1
    assert {id(x) for gpu in one for x in gpu.peers} == {id(x) for gpu in other for x in gpu.peers}


def read(message: finding_pb2.LldpPort) -> LldpPort:
    """As from a message of its own."""
    return lldp_from_proto(finding_pb2.LldpPort.FromString(message.SerializeToString()))


@pytest.mark.parametrize(("description", "is_shared"), [("Cumulus Linux", True), ("x" * 300, False)])
def test_short_texts_are_kept_once(description: str, is_shared: bool) -> None:
    """A bounded number of texts of bounded length is remembered: agents may send any."""
    neighbour = LldpNeighbour("mac", "02:00:00:00:00:aa", "ifname", "swp1", 120, description, "leaf-1")
    neighbour = replace(neighbour, management_addresses=("10.0.0.1",), capabilities=("Bridge", "Router"))
    port = LldpPort("eth0", (neighbour,), "02:00:00:00:00:01", speed_mbps=200_000)
    one, other = read(lldp_to_proto(port)), read(lldp_to_proto(port))
    assert one == other == port
    assert one.interface is other.interface
    assert one.counters is other.counters
    (a,), (b,) = one.neighbours, other.neighbours
    for name in ("chassis_id", "port_id", "system_name"):
        assert getattr(a, name) is getattr(b, name)
    assert a.management_addresses is b.management_addresses
    assert a.capabilities is b.capabilities
    assert one.speed_mbps is other.speed_mbps
    assert (a.port_description is b.port_description) is is_shared


def test_long_lists_of_texts_are_not_remembered() -> None:
    neighbour = LldpNeighbour("mac", "02:00:00:00:00:aa", "ifname", "swp1", 120)
    addresses = tuple(f"10.0.0.{i}" for i in range(200))
    port = LldpPort("eth0", (replace(neighbour, management_addresses=addresses),))
    one, other = read(lldp_to_proto(port)), read(lldp_to_proto(port))
    assert one == other == port
    assert one.neighbours[0].management_addresses is not other.neighbours[0].management_addresses


def test_equal_numbers_of_two_types_stay_of_their_types() -> None:
    assert [type(one_number(x)) for x in (400_000, 400_000.0, 400_000)] == [int, float, int]


BURST = LatencyResult("n2", "eth0", "udp", 7, 16, 16, 5.0, 5.5, 0.1, history=(LatencySample(3, 5.1, 0.2),))
BEFORE = LatencyPort(
    "eth0", ("10.0.0.1",), 4711, "", (BURST, replace(BURST, peer="n3"), replace(BURST, method="rdma"))
)


@pytest.mark.parametrize(
    ("more", "again"),
    [
        ({}, True),
        ({"peer": "n4"}, False),
        ({"peer_interface": "eth1"}, False),
        ({"at_ns": 8}, False),
        ({"at_ns": 8, "history": (*BURST.history, LatencySample(7, 5.0, 0.1))}, False),
        ({"min_us": 4.0}, False),
        ({"history": ()}, False),
    ],
)
def test_a_burst_that_was_told_already_is_not_read_again(more: dict[str, object], again: bool) -> None:
    """Agents tell all that they know at each change, and each minute: thousands of numbers."""
    now = replace(BEFORE, results=(replace(BEFORE.results[0], **more), *BEFORE.results[1:]))
    read = latency_from_proto(latency_to_proto(now), BEFORE)
    assert read == now
    assert (read.results[0] is BEFORE.results[0]) is again
    assert all(x is y for x, y in zip(read.results[1:], BEFORE.results[1:], strict=True))
    elsewhere = replace(now, interface="eth9", addresses=("::1",), udp_port=1, rdma_port="mlx5_0/1")
    assert latency_from_proto(latency_to_proto(elsewhere), BEFORE) == elsewhere

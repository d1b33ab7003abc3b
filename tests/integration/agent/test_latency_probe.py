"""Findings of the `latency` probe: where pings are answered, and what was measured of which peer."""

from collections.abc import AsyncIterator

import pytest
from hyperscout.v1.discovery_pb2 import MeasurePairs, PairTask
from hyperscout.v1.finding_pb2 import LatencyPort, Outcome
from hyperscout_agent.findings.probe import ProbeError
from hyperscout_agent.findings.store import MAX_FINDING_BYTES, FindingStore
from hyperscout_agent.pages.metrics import AgentMetrics
from hyperscout_agent.ping.interfaces import PingInterface
from hyperscout_agent.ping.results import MAX_HISTORY, MAX_RESULTS, Results
from hyperscout_agent.probes.latency import UNSTAMPED, LatencyProbe
from hyperscout_agent.uplink.session import UplinkStats
from hyperscout_formats.facts.facts import LatencyResult, LatencySample
from support.waiting import eventually

LO = PingInterface("lo", ("127.0.0.21", "::1"), "mlx5_0/1")


class Host:
    """Interfaces that come and go."""

    def __init__(self) -> None:
        self.interfaces = [LO]
        self.broken = False

    def __call__(self) -> list[PingInterface]:
        if self.broken:
            raise OSError("netlink is closed")
        return self.interfaces


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
async def probe(host: Host) -> AsyncIterator[LatencyProbe]:
    made = LatencyProbe(interfaces=host, wall_ns=lambda: 1_000)
    yield made
    made.close()


def result(peer: str = "n2", at_ns: int = 1, *, failure: str = "", interface: str = "eth0") -> LatencyResult:
    numbers = (0, 0.0, 0.0, 0.0) if failure else (16, 5.0 + at_ns, 6.0 + at_ns, 0.5)
    return LatencyResult(peer, interface, "udp", at_ns, 16, *numbers, failure=failure)


async def test_where_it_answers(probe: LatencyProbe) -> None:
    seen = (await probe.observe()).samples["lo"]
    assert (seen.outcome, seen.reason) == (Outcome.OUTCOME_DATA, "")
    port = seen.payload
    assert (list(port.addresses), port.rdma_port) == (list(LO.addresses), "mlx5_0/1")
    assert port.udp_port == probe.responder.port_of("lo") > 0, "the same port for both families"


async def test_a_look_changes_nothing(probe: LatencyProbe) -> None:
    first, second = await probe.observe(), await probe.observe()
    assert first == second, "and no other port"


async def test_what_was_measured_is_not_written_anew_at_each_look(probe: LatencyProbe, host: Host) -> None:
    async def payload() -> LatencyPort:
        return (await probe.observe()).samples["lo"].payload

    await payload()
    probe._take("lo", result())
    one = await payload()
    assert await payload() is one, "thousands of results cost more than a look may at rest"
    probe._take("lo", result(at_ns=2))
    two = await payload()
    assert (len(one.results[0].history), len(two.results[0].history)) == (0, 1)
    host.interfaces = [PingInterface("lo", ("127.0.0.23",))]
    three = await payload()
    assert (three.addresses, three.udp_port) == (["127.0.0.23"], probe.responder.port_of("lo"))
    assert three.results == two.results
    host.interfaces = []
    await probe.observe()
    host.interfaces = [PingInterface("lo", ("127.0.0.23",))]
    assert not (await payload()).results, "another one of that name was not measured"


async def test_addresses_and_interfaces_come_and_go(probe: LatencyProbe, host: Host) -> None:
    await probe.observe()
    probe._take("lo", result())
    host.interfaces = [PingInterface("lo", ("127.0.0.22",))]
    port = (await probe.observe()).samples["lo"].payload
    assert probe.responder.addresses_of("lo") == ("127.0.0.22",)
    assert len(port.results) == 1, "what was measured stays known"
    host.interfaces = []
    seen = await probe.observe()
    assert (seen.samples, seen.complete) == ({}, True)
    assert probe.responder.port_of("lo") == 0
    probe._take("lo", result())
    host.interfaces = [LO]
    assert list((await probe.observe()).samples["lo"].payload.results) == []


async def test_an_address_that_cannot_be_had(probe: LatencyProbe, host: Host) -> None:
    host.interfaces = [PingInterface("lo", ("192.0.2.1",)), PingInterface("lo2", ("127.0.0.23",))]
    seen = (await probe.observe()).samples
    assert seen["lo"].payload.udp_port == 0
    assert "the agent cannot answer pings here: Cannot assign requested address" in seen["lo"].reason
    assert seen["lo2"].payload.udp_port > 0, "the others do"
    host.interfaces = [LO]
    assert (await probe.observe()).samples["lo"].reason == "", "it heals"


async def test_a_kernel_that_tells_nothing(probe: LatencyProbe, host: Host) -> None:
    host.broken = True
    with pytest.raises(ProbeError, match="netlink is closed"):
        await probe.observe()


async def test_no_time_stamps_is_said(probe: LatencyProbe) -> None:
    await probe.observe()
    for one in probe.responder._sockets["lo"]:
        one.stamping = False
    assert (await probe.observe()).samples["lo"].reason == UNSTAMPED


async def test_a_task_becomes_a_result(probe: LatencyProbe) -> None:
    await probe.observe()
    task = PairTask(
        task_id=1, peer="n2", interface="lo", address="127.0.0.21", peer_interface="eth3",
        peer_address="127.0.0.24", peer_port=9, key=bytes(32), method="udp", pings=4, first=True,
        expires_s=0.2,
    )  # fmt: skip
    probe.measure_pairs(MeasurePairs(tasks=[task]))
    await eventually(lambda: not probe.tasks)
    found = (await probe.observe()).samples["lo"].payload.results
    assert [(x.peer, x.peer_interface, x.failure) for x in found] == [
        ("n2", "eth3", "no time was left before the task expired")
    ]
    assert found[0].measured_at.ToNanoseconds() == 1_000


async def test_the_finding_stays_below_what_the_store_takes(probe: LatencyProbe) -> None:
    await probe.observe()
    for at_ns in range(1, 3):
        for peer in range(MAX_RESULTS):
            probe._take("lo", result(f"{peer:0200d}", at_ns, interface="x" * 200))
    port = (await probe.observe()).samples["lo"].payload
    assert 400 < len(port.results) < MAX_RESULTS
    assert port.ByteSize() < MAX_FINDING_BYTES - 4096
    assert port.results[-1].peer == f"{MAX_RESULTS - 1:0200d}", "the newest stay"


async def test_a_node_that_all_nodes_measure_tells_of_all_of_them(probe: LatencyProbe) -> None:
    """Histories go before results: a pair counts only when both ends tell of it."""
    await probe.observe()
    for at_ns in range(1, 11):
        for peer in range(2500):
            probe._take("lo", result(f"gpu-{peer:05}.example.com", at_ns))
    port = (await probe.observe()).samples["lo"].payload
    assert len(port.results) == 2500
    assert port.ByteSize() < MAX_FINDING_BYTES - 4096
    histories = [len(x.history) for x in port.results]
    assert set(histories) <= {0, MAX_HISTORY}
    assert histories[0] == 0, "of those that were measured last"
    for _ in range(2000):
        probe._results["lo"]._held.popitem(last=False)
    probe._take("lo", result("gpu-02400.example.com", 11))
    port = (await probe.observe()).samples["lo"].payload
    assert [len(x.history) for x in port.results] == [MAX_HISTORY] * 500, "there is room again"


async def test_metrics(probe: LatencyProbe) -> None:
    await probe.observe()
    probe.keyring.dropped["forged"] += 2
    probe.tasks.bursts["measured"] += 3
    metrics = AgentMetrics(FindingStore("n1"), UplinkStats(), {}, version="1", of_probes=[probe.metrics])
    text = metrics.text().decode()
    assert 'hyperscout_agent_latency_pings_dropped_total{reason="forged"} 2' in text
    assert 'hyperscout_agent_latency_bursts_total{outcome="measured"} 3' in text
    assert "hyperscout_agent_latency_tasks 0\n" in text


# What is held of the past


def test_the_newest_of_each_peer_with_a_short_history() -> None:
    held = Results()
    for at_ns in range(1, 30):
        held.put(result(at_ns=at_ns))
    (found,) = held.newest()
    assert found.at_ns == 29
    assert [x.at_ns for x in found.history] == list(range(29 - MAX_HISTORY, 29))
    assert found.history[-1] == LatencySample(28, 33.0, 0.5)


def test_a_failure_is_no_history() -> None:
    held = Results()
    for at_ns, failure in ((1, ""), (2, "no answer"), (3, "no answer"), (4, "")):
        held.put(result(at_ns=at_ns, failure=failure))
    (found,) = held.newest()
    assert (found.at_ns, [x.at_ns for x in found.history]) == (4, [1])


def test_the_oldest_result_is_dropped_first() -> None:
    held = Results()
    for number in range(MAX_RESULTS):
        held.put(result(f"n{number}", number))
    held.put(result("n0", MAX_RESULTS))
    held.put(result("new", MAX_RESULTS + 1))
    names = {x.peer for x in held.newest()}
    assert len(held) == len(names) == MAX_RESULTS
    assert "n1" not in names
    assert names >= {"n0", "n2", "new"}
    assert {x.peer for x in held.newest(2 / MAX_RESULTS)} == {"n0", "new"}
    assert [x.peer for x in held.newest()] == sorted(names)

"""Which of two findings is newer, with clocks that are wrong, set back, or in the future."""

import re
from collections.abc import Iterator
from math import inf, nan
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from hyperscout.v1.finding_pb2 import Finding, Gpu, Outcome
from hyperscout_collector.evidence.rows import (
    FAILED,
    PARTIAL,
    WHOLE,
    BadFinding,
    Row,
    merged,
    newer,
    row_of,
)
from hyperscout_formats.facts.facts import InfinibandPort, LldpPort
from support.findings import T0, S, failed, gpus, lldp, stamp, sweep

HOUR = 3600 * S


def accelerator(**fields: Any) -> Finding:
    """A finding of a GPU that claims these fields."""
    finding = lldp("n1", "0000:1b:00.0")
    finding.gpu.CopyFrom(Gpu(**fields))
    return finding


def row(
    seen_at: int, *, clock: int = 0, arrives: int | None = None, name: str = "leaf-1", sent: int | None = None
) -> Row:
    """What an agent whose clock is off by `clock` saw at `seen_at` (our time), sent at once or at `sent`."""
    sent_at = seen_at if sent is None else sent
    received = sent_at if arrives is None else arrives
    finding = lldp("n1", "eth0", seen_at + clock, neighbour=name)
    return row_of(finding, sent_ns=sent_at + clock, received_ns=received)


def test_rows_share_what_is_the_same_in_them() -> None:
    """A large cluster has hundreds of thousands of rows."""
    first = row(T0, clock=HOUR)
    other, same = lldp("n1", "eth1", T0 + HOUR), lldp("n1", "eth0", T0 + S + HOUR, neighbour="leaf-1")
    beside = row_of(other, sent_ns=T0 + HOUR, received_ns=T0)
    later = row_of(same, sent_ns=T0 + S + HOUR, received_ns=T0 + S, known=(first,))
    assert later.key is first.key
    assert later.fact is first.fact
    assert beside.offset_ns is first.offset_ns is later.offset_ns


@pytest.mark.parametrize("clock", [0, HOUR, -HOUR, 5 * S])
@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        ((T0 + 5 * S, "leaf-2"), (T0, "leaf-1"), True),
        ((T0, "leaf-2"), (T0 + 5 * S, "leaf-1"), False),  # out of order
        ((T0, "leaf-1"), (T0, "leaf-1"), False),  # a duplicate
        ((T0 + 5 * S, "leaf-1"), (T0, "leaf-1"), True),  # the same sight, seen again
        ((T0, "leaf-2"), (T0, "leaf-1"), True),  # one instant, two sights: the stream keeps its order
    ],
)
def test_one_clock_however_wrong_orders_its_own_findings(
    clock: int, new: tuple[int, str], old: tuple[int, str], expected: bool
) -> None:
    later = T0 + 10 * S
    before = row(old[0], clock=clock, name=old[1], sent=later)
    after = row(new[0], clock=clock, name=new[1], sent=later + S // 100)
    assert newer(after, before, later + S) is expected


@pytest.mark.parametrize(("first_clock", "then_clock"), [(HOUR, 0), (0, HOUR), (-HOUR, 0), (0, -HOUR)])
def test_a_clock_that_is_set_does_not_block_what_comes_after(first_clock: int, then_clock: int) -> None:
    before = row(T0, clock=first_clock)
    after = row(T0 + 5 * S, clock=then_clock, name="leaf-2")
    assert newer(after, before, T0 + 6 * S)
    assert not newer(before, after, T0 + 6 * S)


def test_a_finding_from_its_agents_own_future_counts_as_seen_when_it_was_sent() -> None:
    wrong = row_of(lldp("n1", "eth0", T0 + 24 * HOUR), sent_ns=T0, received_ns=T0)
    assert wrong.seen_ns == T0
    assert newer(row(T0 + S, name="leaf-2"), wrong, T0 + S)


def test_when_our_own_clock_is_set_back_what_comes_in_is_newer() -> None:
    before = row(T0)
    after = row(T0 - HOUR, name="leaf-2")
    assert newer(after, before, T0 - HOUR)


@pytest.mark.parametrize("clock", [0, HOUR, -HOUR])
def test_age_is_by_our_clock(clock: int) -> None:
    assert row(T0, clock=clock, sent=T0 + 30 * S).seen_ns == T0


def test_a_failed_look_stays_beside_the_last_good_one_and_goes_with_the_next() -> None:
    good, bad = row(T0), row_of(failed("n1", "lldp", "eth0", T0 + S), sent_ns=T0 + S, received_ns=T0 + S)
    both = merged(merged((), good, T0 + S), bad, T0 + S)
    assert [look.rank for look in both] == [WHOLE, FAILED]
    again = row(T0 + 2 * S)
    assert merged(both, again, T0 + 2 * S) == (again,)
    assert merged(both, row(T0 + S // 2, name="leaf-9"), T0 + 2 * S)[1] == bad  # seen before it failed


def test_a_partial_sweep_never_takes_the_place_of_a_whole_one() -> None:
    whole = row_of(sweep("n1", b"1" * 32), sent_ns=T0, received_ns=T0)
    partial = row_of(sweep("n1", b"2" * 32, T0 + S, partial=True), sent_ns=T0 + S, received_ns=T0 + S)
    looks = merged(merged((), whole, T0), partial, T0 + S)
    assert [(look.rank, look.sha256) for look in looks] == [(WHOLE, b"1" * 32), (PARTIAL, b"2" * 32)]
    assert merged(looks, whole, T0 + S) is looks  # the full state after a reconnect
    assert merged(looks, partial, T0 + S) is looks


@pytest.mark.parametrize(
    ("finding", "word"),
    [
        (Finding(), "node"),
        (lldp("n" * 300, "eth0"), "node"),
        (lldp("n1", ""), "subject"),
        (Finding(key=lldp("n1", "eth0").key, observed_at=stamp(T0)), "outcome"),
        (Finding(key=lldp("n1", "eth0").key, outcome=Outcome.OUTCOME_DATA), "observed_at"),
        (failed("n1", "lldp", "eth0", reason="x" * 2000), "reason"),
        (sweep("n1", b"short"), "sha256"),
        (gpus("g0", subject="other"), "device_resource.name"),
        (gpus(*(f"g{i}" for i in range(513))), "513 devices; expected at most 512"),
        (gpus("g0", "g0"), "two devices"),
        (gpus(""), "an id has 0 characters"),
        (gpus("g0", numa_nodes=[1024]), "g0: NUMA nodes are below 1024"),
        (accelerator(kind="quantum"), "gpu.kind 'quantum': expected nvlink, xgmi, ascend"),
        (accelerator(fabric={"state": "completed", "domain": "a/b"}), "gpu.fabric.domain 'a/b'"),
    ],
)
def test_what_no_agent_sends_is_refused_with_the_reason(finding: Finding, word: str) -> None:
    with pytest.raises(BadFinding, match=word):
        row_of(finding, sent_ns=T0, received_ns=T0)


@pytest.mark.parametrize("seconds", [-(1 << 62), 1 << 62, -62135596801])
def test_an_absurd_time_is_refused(seconds: int) -> None:
    finding = lldp("n1", "eth0")
    finding.observed_at.seconds = seconds
    with pytest.raises(BadFinding, match="observed_at"):
        row_of(finding, sent_ns=T0, received_ns=T0)


NUMBERS = {
    "infiniband.rate_gbps": lambda f: f.infiniband,
    "gpu.pcie_gbps": lambda f: f.gpu,
    "gpu.links.gbytes_per_s": lambda f: f.gpu.links.add(),
    "latency.results.min_us": lambda f: f.latency.results.add(),
    "latency.results.median_us": lambda f: f.latency.results.add(),
    "latency.results.jitter_us": lambda f: f.latency.results.add(),
    "latency.results.bandwidth_gbps": lambda f: f.latency.results.add(),
    "latency.results.history.min_us": lambda f: f.latency.results.add().history.add(),
    "latency.results.history.jitter_us": lambda f: f.latency.results.add().history.add(),
    "nccl.duration_s": lambda f: f.nccl,
    "nccl.results.time_us": lambda f: f.nccl.results.add(),
    "nccl.results.algorithm_gbytes_per_s": lambda f: f.nccl.results.add(),
    "nccl.results.bus_gbytes_per_s": lambda f: f.nccl.results.add(),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_are_none_are_refused_with_the_name_of_their_field(name: str) -> None:
    for value in (nan, inf, -inf, -1.0, 1e301):
        finding = lldp("n1", "mlx5_0")
        setattr(NUMBERS[name](finding), name.rpartition(".")[2], value)
        expected = re.escape(f"{name}: {value}: expected a number from 0")
        with pytest.raises(BadFinding, match=expected):
            row_of(finding, sent_ns=T0, received_ns=T0)
    for value in (0.0, 400.0):
        finding = lldp("n1", "mlx5_0")
        setattr(NUMBERS[name](finding), name.rpartition(".")[2], value)
        assert row_of(finding, sent_ns=T0, received_ns=T0).fact is not None


def test_every_number_of_a_fact_is_checked() -> None:
    """A new field of type double is checked, or named here: that of a sweep is in no fact."""

    def doubles(message: Descriptor, path: str) -> Iterator[str]:
        for field in message.fields:
            if field.type == field.TYPE_DOUBLE:
                yield f"{path}.{field.name}"
            elif field.message_type is not None:
                yield from doubles(field.message_type, f"{path}.{field.name}")

    found = {path.removeprefix(".") for path in doubles(Finding.DESCRIPTOR, "")}
    assert found == {*NUMBERS, "sweep.duration_s"}


SLOTS = {
    "an address without its root": {"pci_address": "0000:18:00.0"},
    "a root without an address": {"pcie_root": "pci0000:15"},
    "an address that is none": {"pci_address": "18:00.0", "pcie_root": "pci0000:15"},
    "a long text": {"pci_address": "x" * 10_000, "pcie_root": "pci0000:15"},
    "a NUMA node that is none": {"numa_node": 1024},
}


@pytest.mark.parametrize("payload", ["lldp", "infiniband"])
@pytest.mark.parametrize("name", SLOTS)
def test_a_slot_that_is_none_is_refused(payload: str, name: str) -> None:
    finding = lldp("n1", "eth0")
    port = getattr(finding, payload)
    for field, value in SLOTS[name].items():
        setattr(port, field, value)
    with pytest.raises(BadFinding, match=rf"^{payload}\.[a-z_, .]+: ") as caught:
        row_of(finding, sent_ns=T0, received_ns=T0)
    assert len(str(caught.value)) < 250
    port.pci_address, port.pcie_root, port.numa_node = "0000:18:00.0", "pci0000:15", 1023
    fact = row_of(finding, sent_ns=T0, received_ns=T0).fact
    assert isinstance(fact, LldpPort | InfinibandPort)
    assert (fact.pci_address, fact.pcie_root, fact.numa_node) == ("0000:18:00.0", "pci0000:15", 1023)

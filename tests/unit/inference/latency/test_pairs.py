"""What both ends of a pair agree upon: tables of quirks, a slow second opinion, and ends that lie."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hyperscout_formats.facts.facts import LatencyPort, LatencyResult
from hyperscout_inference.latency.pairs import (
    MAX_RTT_US,
    MIN_RTT_US,
    NOISE_SHARE,
    NOISE_US,
    RDMA,
    Clock,
    PairReader,
    PairTable,
)
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.latency_pairs import pairs_of

AT_NS = 1_790_000_000_000_000_000
Ports = Mapping[str, Sequence[LatencyPort]]
Row = tuple[str, str, str, float, float]  # a, b, rail, round trip, bandwidth


def result(peer: str, rtt_us: float = 5.0, **more: Any) -> LatencyResult:
    first = LatencyResult(peer, "ib0", "udp", AT_NS, 16, 16, rtt_us, rtt_us * 1.2, 0.1)
    return replace(first, **more)


def port(*results: LatencyResult, interface: str = "ib0") -> LatencyPort:
    return LatencyPort(interface, ("10.0.0.1",), 4711, "", results)


def both(x: LatencyResult, y: LatencyResult) -> dict[str, tuple[LatencyPort, ...]]:
    """Nodes a and b, and what each says of the other."""
    return {"a": (port(replace(x, peer="b")),), "b": (port(replace(y, peer="a")),)}


def rows(table: PairTable) -> list[Row]:
    return [
        (table.nodes[a], table.nodes[b], table.rails[rail], rtt, gbps)
        for a, b, rail, rtt, gbps in zip(
            table.a.tolist(),
            table.b.tolist(),
            table.rail.tolist(),
            table.rtt_us.tolist(),
            table.bandwidth_gbps.tolist(),
            strict=True,
        )
    ]


def test_both_ends_make_one_row() -> None:
    table = pairs_of(
        both(
            result("", 5.0, at_ns=AT_NS, received=15, jitter_us=0.3),
            result("", 5.4, at_ns=AT_NS + 7, received=9, jitter_us=0.2),
        )
    )
    assert (table.nodes, table.rails) == (("a", "b"), ("ib0",))
    assert rows(table) == [("a", "b", "ib0", 5.4, 0.0)]
    assert (table.jitter_us[0], table.samples[0], table.at_ns[0]) == (0.3, 9, AT_NS + 7)
    assert table.disagreeing == 0
    assert (table.a.dtype, table.rtt_us.dtype, table.at_ns.dtype) == (np.int32, np.float64, np.int64)


GOOD = result("")


@pytest.mark.parametrize(
    ("x", "y", "kept", "disagreeing"),
    [
        (GOOD, replace(GOOD, min_us=6.4), True, 0),
        (GOOD, replace(GOOD, min_us=6.6), False, 1),
        (replace(GOOD, min_us=2.0), replace(GOOD, min_us=2.9), True, 0),
        (replace(GOOD, min_us=2.0), replace(GOOD, min_us=3.1), False, 1),
        (GOOD, replace(GOOD, received=1), True, 0),  # loss one way is no lie
        (GOOD, replace(GOOD, received=0), False, 0),
        (GOOD, replace(GOOD, received=17), False, 0),
        (GOOD, replace(GOOD, failure="no answer"), False, 0),
        (GOOD, replace(GOOD, min_us=0.0), False, 0),
        (GOOD, replace(GOOD, min_us=-5.0), False, 0),
        (GOOD, replace(GOOD, min_us=math.nan), False, 0),
        (GOOD, replace(GOOD, min_us=math.inf), False, 0),
        (replace(GOOD, min_us=0.05), replace(GOOD, min_us=0.05), False, 0),
        (replace(GOOD, min_us=2e6), replace(GOOD, min_us=2e6), False, 0),
        (GOOD, replace(GOOD, peer_interface="ib1"), False, 0),
        (GOOD, replace(GOOD, method="carrier pigeon"), False, 0),
        (GOOD, replace(GOOD, method="rdma"), False, 0),
    ],
)
def test_what_is_kept(x: LatencyResult, y: LatencyResult, kept: bool, disagreeing: int) -> None:
    for ports in (both(x, y), both(y, x)):
        table = pairs_of(ports)
        assert (len(table) == 1, table.disagreeing) == (kept, disagreeing)


def test_a_pair_that_one_end_has_measured_is_left_out() -> None:
    assert len(pairs_of({"a": (port(result("b")),), "b": (port(),)})) == 0
    assert len(pairs_of({"a": (port(result("b")),)})) == 0
    assert len(pairs_of({})) == 0


def test_no_node_is_a_pair_with_itself_or_with_a_peer_without_an_agent() -> None:
    ports = {"a": (port(result("a"), result("ghost"), result("b")),), "b": (port(result("a"), result("b")),)}
    assert rows(pairs_of(ports)) == [("a", "b", "ib0", 5.0, 0.0)]


def test_rails_are_called_as_their_interfaces() -> None:
    ports = {
        "b": (
            port(result("a", 7.0, peer_interface="eth9"), interface="ib0"),
            port(result("a", 5.0, peer_interface="ib1"), interface="ib1"),
        ),
        "a": (
            port(result("b", 5.0, peer_interface="ib1"), interface="ib1"),
            port(result("b", 7.0), interface="eth9"),
        ),
    }
    assert rows(pairs_of(ports)) == [("a", "b", "eth9~ib0", 7.0, 0.0), ("a", "b", "ib1", 5.0, 0.0)]


RDMA_RESULT = result("", 2.0, method="rdma", bandwidth_gbps=390.0)


def of_both_methods(*udp: LatencyResult, x: LatencyResult, y: LatencyResult) -> PairTable:
    return pairs_of(
        {
            "a": (port(*(replace(r, peer="b") for r in (*udp[:1], x))),),
            "b": (port(*(replace(r, peer="a") for r in (*udp[1:], y))),),
        }
    )


@pytest.mark.parametrize(
    ("udp", "x", "y", "expected", "disagreeing"),
    [
        ((GOOD, GOOD), RDMA_RESULT, RDMA_RESULT, ("ib0", 5.0, 390.0), 0),
        ((GOOD, GOOD), RDMA_RESULT, replace(RDMA_RESULT, bandwidth_gbps=300.0), ("ib0", 5.0, 300.0), 0),
        ((GOOD, GOOD), RDMA_RESULT, replace(RDMA_RESULT, bandwidth_gbps=30.0), ("ib0", 5.0, 0.0), 1),
        ((GOOD, GOOD), RDMA_RESULT, replace(RDMA_RESULT, bandwidth_gbps=math.inf), ("ib0", 5.0, 0.0), 0),
        ((GOOD, GOOD), RDMA_RESULT, replace(RDMA_RESULT, failure="no device"), ("ib0", 5.0, 0.0), 0),
        (
            (GOOD, GOOD),
            replace(RDMA_RESULT, min_us=0.0, received=0),
            replace(RDMA_RESULT, min_us=0.0),
            ("ib0", 5.0, 390.0),
            0,
        ),
        ((), RDMA_RESULT, replace(RDMA_RESULT, min_us=2.2), ("ib0" + RDMA, 2.2, 390.0), 0),
        ((), RDMA_RESULT, replace(RDMA_RESULT, min_us=9.0), None, 1),
        ((GOOD, replace(GOOD, min_us=50.0)), RDMA_RESULT, RDMA_RESULT, None, 1),
    ],
)
def test_rdma_adds_bandwidth_and_never_mixes_with_udp(
    udp: tuple[LatencyResult, ...],
    x: LatencyResult,
    y: LatencyResult,
    expected: tuple[str, float, float] | None,
    disagreeing: int,
) -> None:
    table = of_both_methods(*udp, x=x, y=y)
    assert [row[2:] for row in rows(table)] == ([] if expected is None else [expected])
    assert table.disagreeing == disagreeing


def test_udp_measures_no_bandwidth() -> None:
    boast = replace(GOOD, bandwidth_gbps=9000.0)
    assert rows(pairs_of(both(boast, boast))) == [("a", "b", "ib0", 5.0, 0.0)]


@pytest.mark.parametrize(
    ("clock", "at_ns", "expected"),
    [
        (Clock(3_600_000_000_000, AT_NS + 3_600_000_000_001), AT_NS + 3_600_000_000_000, AT_NS),
        (Clock(-5, AT_NS), AT_NS - 5, AT_NS),
        (Clock(0, AT_NS), AT_NS + 10**15, AT_NS),  # from the future: at the latest when it was reported
        (Clock(0, AT_NS), -5, 0),
        (Clock(0, 1 << 62), 10**20, 1 << 62),
        (Clock(0, AT_NS), -(10**20), 0),
    ],
)
def test_times_are_by_our_clock(clock: Clock, at_ns: int, expected: int) -> None:
    ports = both(replace(GOOD, at_ns=at_ns), replace(GOOD, at_ns=0))
    table = pairs_of(ports, {"a": (clock,)})
    assert table.at_ns.tolist() == [expected]


def test_of_two_reports_of_one_end_the_newest_counts() -> None:
    old, new = result("b", 5.0, at_ns=AT_NS - 1), result("b", 5.5)
    for results in ((old, new), (new, old)):
        ports = {"a": (port(*results),), "b": (port(result("a")),)}
        assert rows(pairs_of(ports)) == [("a", "b", "ib0", 5.5, 0.0)]


# --- ends that lie


@given(
    true_us=st.floats(1.5, 200),
    lie_us=st.floats(0, 250),
    noise_us=st.floats(0, 0.5),
    reports_too=st.booleans(),
)
def test_a_residence_that_is_a_lie_makes_no_pair_near(
    true_us: float, lie_us: float, noise_us: float, reports_too: bool
) -> None:
    """b says that it kept a's pings for longer than it did; what it measures itself it reports as it is, or
    as too far."""
    seen_by_a = max(true_us + noise_us - lie_us, 0.0)
    seen_by_b = true_us + (lie_us if reports_too else 0.0)
    for table in (
        pairs_of(both(result("", seen_by_a), result("", seen_by_b))),
        pairs_of(both(result("", seen_by_b), result("", seen_by_a))),
    ):
        assert all(rtt >= true_us for rtt in table.rtt_us.tolist())
        if abs(seen_by_a - seen_by_b) > max(NOISE_US, NOISE_SHARE * seen_by_b) and seen_by_a >= MIN_RTT_US:
            assert (len(table), table.disagreeing) == (0, 1)


@given(before_us=st.floats(1.5, 200), now_us=st.floats(1.5, 200))
def test_a_node_that_repeats_old_answers_makes_no_pair_near(before_us: float, now_us: float) -> None:
    """b was re-cabled: a has measured it again, b tells for ever what it saw before."""
    table = pairs_of(both(result("", now_us), result("", before_us, at_ns=AT_NS - 10**15)))
    assert all(rtt >= now_us for rtt in table.rtt_us.tolist())


# --- a slow second opinion

NAMES = ["a", "b", "c", "ghost"]
numbers = st.one_of(
    st.sampled_from([0.0, -1.0, 5.0, 5.5, 6.0, 50.0, math.nan, math.inf, -math.inf, 1e300, 5e-324]),
    st.floats(),
)
counts = st.one_of(st.sampled_from([0, 1, 16]), st.integers(0, 2**32 - 1))
results = st.builds(
    LatencyResult,
    st.sampled_from(NAMES),
    st.sampled_from(["ib0", "ib1"]),
    st.sampled_from(["udp", "udp", "rdma", "", "x" * 300]),
    st.one_of(st.just(AT_NS), st.integers(-(10**21), 10**21)),
    counts,
    counts,
    numbers,
    numbers,
    numbers,
    numbers,
    st.sampled_from(["", "", "", "no answer"]),
)
some_ports = st.dictionaries(
    st.sampled_from(NAMES[:3]),
    st.lists(
        st.builds(
            lambda interface, found: port(*found, interface=interface),
            st.sampled_from(["ib0", "ib1"]),
            st.lists(results, max_size=6),
        ),
        max_size=3,
    ).map(tuple),
)


def slowly(ports: Ports) -> tuple[list[Row], int]:
    """Rows and pairs that disagree, one at a time."""
    said: dict[tuple[str, str, str, str, str], list[tuple[int, float, float]]] = {}
    for node, seen in ports.items():
        for one in seen:
            for r in one.results:
                rtt_us = (
                    r.min_us if MIN_RTT_US <= r.min_us <= MAX_RTT_US and 0 < r.received <= r.sent else 0.0
                )
                gbps = r.bandwidth_gbps if 0 < r.bandwidth_gbps <= 1e5 and r.method == "rdma" else 0.0
                if r.failure or r.method not in ("udp", "rdma") or not (rtt_us or gbps) or r.peer == node:
                    continue
                key = (node, one.interface, r.peer, r.peer_interface, r.method)
                at_ns = min(max(r.at_ns, 0), 1 << 62)
                said.setdefault(key, []).append((at_ns, rtt_us, gbps))
    found: dict[tuple[str, str, str, str], dict[str, tuple[float, float]]] = {}
    wrong = 0
    for (node, here, peer, there, method), mine in said.items():
        theirs = said.get((peer, there, node, here, method))
        if node > peer or theirs is None:
            continue
        (_, x_us, x_gbps), (_, y_us, y_gbps) = (max(each, key=lambda one: one[:2]) for each in (mine, theirs))
        rtt_us = 0.0
        if x_us and y_us:
            near, far = sorted((x_us, y_us))
            rtt_us = far if far - near <= max(1.0, 0.3 * near) else -1.0
        gbps = 0.0
        if x_gbps and y_gbps:
            low, high = sorted((x_gbps, y_gbps))
            gbps = low if low >= (1 - 0.3) * high else -1.0
        wrong += (rtt_us < 0) + (gbps < 0)
        found.setdefault((node, peer, here, there), {})[method] = rtt_us, max(gbps, 0.0)
    table = []
    for (a, b, here, there), methods in found.items():
        rail = here if here == there else f"{here}~{there}"
        gbps = methods.get("rdma", (0.0, 0.0))[1]
        if "udp" not in methods:
            rail += "/rdma"
        rtt_us = methods.get("udp", methods.get("rdma", (0.0, 0.0)))[0]
        if rtt_us > 0:
            table.append((a, b, rail, rtt_us, gbps))
    return sorted(table), wrong


@examples(5)
@given(ports=some_ports)
@pytest.mark.slow
def test_any_reports_are_read_as_slowly(ports: Ports) -> None:
    table = pairs_of(ports)
    assert (rows(table), table.disagreeing) == slowly(ports)
    assert np.isfinite(table.rtt_us).all()
    assert np.isfinite(table.jitter_us).all()
    assert ((table.jitter_us >= 0) | (table.jitter_us == -1)).all()
    assert (table.a < table.b).all()
    assert ((table.at_ns >= 0) & (table.samples > 0)).all()
    assert set(table.nodes) == {table.nodes[i] for i in (*table.a.tolist(), *table.b.tolist())}
    assert list(table.nodes) == sorted(table.nodes)


@given(ports=some_ports, later=some_ports, order=st.randoms(use_true_random=False))
def test_reading_again_and_in_any_order_gives_the_same(ports: Ports, later: Ports, order: Any) -> None:
    reader = PairReader()
    first = reader.read(ports)
    assert reader.read(dict(ports)) is first
    changed = dict(ports) | dict(later)
    names = list(changed)
    order.shuffle(names)
    again, fresh = reader.read({name: changed[name] for name in names}), pairs_of(changed)
    assert rows(again) == rows(fresh)
    assert again.at_ns.tolist() == fresh.at_ns.tolist()
    assert rows(reader.read({})) == []


def test_a_node_that_reports_anew_is_read_again() -> None:
    reader = PairReader()
    before = both(GOOD, GOOD)
    assert rows(reader.read(before)) == [("a", "b", "ib0", 5.0, 0.0)]
    after = before | {"b": (port(result("a", 5.5)),)}
    assert rows(reader.read(after)) == [("a", "b", "ib0", 5.5, 0.0)]
    assert reader.read(after, {"a": (Clock(7, AT_NS),), "b": (Clock(7, AT_NS),)}).at_ns.tolist() == [
        AT_NS - 7
    ]
    assert rows(reader.read({"c": after["b"], "a": after["a"]})) == []


def test_names_without_end_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hyperscout_inference.latency.pairs._MAX_NAMES", 50)
    reader = PairReader()
    for i in range(40):
        ports = both(GOOD, GOOD) | {"c": (port(*(result(f"x{i}-{j}") for j in range(9))),)}
        assert rows(reader.read(ports)) == [("a", "b", "ib0", 5.0, 0.0)]
        assert len(reader._names) < 80

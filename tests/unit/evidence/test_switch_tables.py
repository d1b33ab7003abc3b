"""Looks at whole switches: which are in force, in whatever order they came, and whatever is sent as one."""

import contextlib
from collections.abc import Sequence
from ipaddress import ip_address

from google.protobuf.message import DecodeError
from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome, SwitchTable
from hyperscout_collector.app.ingest.seeds import Seeds
from hyperscout_collector.evidence.rows import BadFinding, row_of
from hyperscout_collector.evidence.state import EvidencePlan, EvidenceState
from hyperscout_collector.evidence.switch_tables import chassis_ids, in_force, readings_of
from hyperscout_collector.ingest.streams import Streams
from hypothesis import given
from hypothesis import strategies as st
from support.evidence_rows import all_rows
from support.findings import T0, S, chassis, failed, stamp, table

SWITCHES, REPORTERS = ("leaf-1", "leaf-2"), ("fabric/a", "fabric/b")


@st.composite
def a_look(draw: st.DrawFn) -> Finding:
    """Of one of few switches by one of few reporters at one of few times; some fail."""
    switch, reporter = draw(st.sampled_from(SWITCHES)), draw(st.sampled_from(REPORTERS))
    probe, at_ns = draw(st.sampled_from(("snmp", "netq"))), T0 + draw(st.integers(0, 2)) * 100 * S
    if draw(st.integers(0, 5)) == 0:
        return failed(reporter, probe, chassis(switch), at_ns)
    cables = draw(st.dictionaries(st.sampled_from(("swp1", "swp2")), st.just(""), min_size=1))
    return table(switch, cables, at_ns, reporter=reporter, probe=probe)


def state_of(findings: Sequence[Finding], now_ns: int) -> EvidenceState:
    state = EvidenceState()
    for finding in findings:
        plan = EvidencePlan(state, now_ns)
        plan.upsert(row_of(finding, sent_ns=now_ns, received_ns=now_ns), b"")
        state.commit(plan)
    return state


@given(st.lists(a_look(), max_size=12), st.randoms(use_true_random=False))
def test_what_is_in_force_depends_on_the_looks_alone(findings: list[Finding], rng: object) -> None:
    now_ns = T0 + 600 * S
    # Two different readings at one time are no evidence that a reporter gives: the later one to come counts.
    by_time = {(f.key.node, f.key.probe, f.key.subject, f.observed_at.seconds): f for f in findings}
    once = list(by_time.values())
    shuffled = list(once)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    limit_ns = T0 + 100 * S
    results = []
    for order in (once, shuffled):
        readings = readings_of(all_rows(state_of(order, now_ns)))
        assert chassis_ids(readings).keys() <= set(REPORTERS)
        results.append(in_force(readings, limit_ns))
    assert results[0] == results[1]
    seen: dict[tuple[str, str], int] = {}
    for finding in once:
        if finding.outcome == Outcome.OUTCOME_DATA:
            key = finding.key.subject, finding.key.probe
            seen[key] = max(seen.get(key, 0), finding.observed_at.ToNanoseconds())
    assert [(x.table.ports[0].chassis_id, x.source) for x in results[0]] == sorted(seen)
    for found in results[0]:
        newest_ns = seen[found.table.ports[0].chassis_id, found.source]
        assert (found.observed_at_ns, found.silent) == (newest_ns, newest_ns < limit_ns)


@given(st.binary(max_size=400), st.lists(st.tuples(st.text(max_size=8), st.text(max_size=20)), max_size=4))
def test_whatever_is_sent_as_a_table_is_one_or_is_refused(junk: bytes, ports: list[tuple[str, str]]) -> None:
    message = SwitchTable()
    with contextlib.suppress(DecodeError):
        message.ParseFromString(junk)
    for name, address in ports:
        port = message.ports.add(interface=name, chassis_id=name)
        port.neighbours.add(chassis_id=name, management_addresses=[address, name])
    key = FindingKey(node="fabric/a", probe="snmp", subject="x")
    finding = Finding(key=key, observed_at=stamp(T0), outcome=Outcome.OUTCOME_DATA, switch_table=message)
    try:
        row = row_of(finding, sent_ns=T0, received_ns=T0)
    except BadFinding:
        assert len({port.chassis_id for port in message.ports}) > 1
        return
    state = state_of([finding], T0)
    assert [reading.row for reading in readings_of(all_rows(state))] == [row]
    assert len(in_force(readings_of(all_rows(state)), T0)) == 1
    seeds = Seeds(Streams(1), state)
    seeds.touch(state.nodes)
    for address in seeds.addresses:
        assert ip_address(address).is_loopback is False

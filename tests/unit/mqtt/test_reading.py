"""Any bytes give a batch or one named error, and every message that the schema allows is read."""

import contextlib
import json
import re
from typing import Any

import jsonschema
import pytest
from google.protobuf.json_format import MessageToDict
from hyperscout.v1.discovery_pb2 import FindingBatch
from hyperscout_collector.ingest.device_messages import MAX_MESSAGE_BYTES, BadMessageError, read
from hypothesis import given
from hypothesis import strategies as st
from support.findings import T0, adapter, called, failed, lldp, stamp, switch_port
from support.mqtt_world import SCHEMAS
from support.real import ROOT

FINDINGS = json.loads((SCHEMAS / "findings.schema.json").read_text())
SCHEMA = jsonschema.Draft202012Validator(FINDINGS)
BATCH = FindingBatch(
    findings=[
        switch_port("switch/leaf-1", "swp1"),
        called(adapter("n1"), "n1", "device"),
        called(lldp("n1", "p0"), "n1", "device"),
        failed("n1", "device", "*"),
    ],
    removed=[lldp("n1", "p1").key],
    full_state_ends=True,
    sent_at=stamp(T0),
)
MESSAGE = MessageToDict(BATCH)


def why(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    with pytest.raises(BadMessageError) as caught:
        read(data)
    return str(caught.value)


def with_(path: str, value: Any) -> Any:
    """The message with something else at a.b.0.c; "-" takes it away."""
    found = json.loads(json.dumps(MESSAGE))
    *way, last = path.split(".")
    at = found
    for step in way:
        at = at[int(step) if step.isdecimal() else step]
    if value == "-":
        del at[last]
    else:
        at[int(last) if last.isdecimal() else last] = value
    return found


def test_the_contract_s_own_json_is_taken_as_it_is() -> None:
    SCHEMA.validate(MESSAGE)
    assert read(json.dumps(MESSAGE).encode()) == BATCH


def test_the_message_of_the_page_is_taken() -> None:
    [message] = re.findall(r"```json\n(.*?)```", (ROOT / "docs/mqtt.md").read_text("utf-8"), re.DOTALL)
    SCHEMA.validate(json.loads(message))
    assert [one.key.subject for one in read(message.encode()).findings] == ["Ethernet0"]


def test_the_least_of_a_message() -> None:
    key = {"node": "switch/leaf-1", "probe": "switch", "subject": "Ethernet0"}
    finding = {"key": key, "observedAt": "2026-11-22T08:00:00Z", "outcome": "OUTCOME_NOTHING"}
    assert read(json.dumps({"findings": [finding]}).encode()).findings[0].key.subject == "Ethernet0"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "expected an object with a list `findings`"),
        (1, "expected an object"),
        ({}, "a list `findings`"),
        (with_("findings", None), "a list `findings`"),
        (with_("findings.1", None), "findings[1]: expected an object"),
        (with_("sentTo", "1"), 'no field named "sentTo"'),
        (with_("findings.0.switchPort.spedMbps", 1), 'no field named "spedMbps" at "Finding.switchPort"'),
        (with_("findings.0.switchPort.a\nb\x07", 1), "no field named"),
        (
            with_("findings.0.key.node", 1),
            "findings[0]: Failed to parse key field: Failed to parse node field",
        ),
        (with_("findings.0.key.subject", "x" * 1025), "findings[0].key.subject: 1025 characters"),
        (with_("findings.0.outcome", [[[]]]), "findings[0]: Failed to parse outcome field"),
        (with_("findings.0.outcome", "OUTCOME_WRONG"), "Invalid enum value OUTCOME_WRONG"),
        (with_("findings.0.lldp", {}), 'should not have multiple "payload" oneof fields'),
        (
            with_("findings.0.switchPort.neighbours", [{}] * 257),
            "neighbours: 257 elements; expected at most 256",
        ),
        (with_("removed", [{}] * 4097), "removed: 4097 elements; expected at most 4096"),
        (with_("unchanged", [{"probe": "switch"}]), "unchanged: only the stream of an agent"),
        (with_("findings.0.switchPort.carrier", 1), "findings[0]: Failed to parse carrier field"),
        (with_("findings.0.switchPort.carrierChanges", -1), "carrierChanges field: Value out of range: -1"),
        (with_("findings.0.switchPort.carrierChanges", 1.5), "Couldn't parse integer: 1.5"),
        (with_("findings.0.switchPort.carrierChanges", True), "not acceptable for integer field"),
        (with_("findings.0.switchPort.speedMbps", 10**400), "speedMbps field: Value out of range"),
        (with_("findings.0.observedAt", "2026-11-22T08:00:00"), "observedAt field"),
        (with_("findings.0.observedAt", "2026-02-30T08:00:00Z"), "observedAt"),
        (with_("findings.1.infiniband.nodeGuid", str(2**64)), "nodeGuid"),
        (with_("findings.1.infiniband.rateGbps", -1), "findings[1].infiniband.rateGbps: expected 0 to 1e+09"),
        (with_("findings.1.infiniband.rateGbps", "NaN"), "findings[1].infiniband.rateGbps: expected 0 to"),
        (with_("findings.1.infiniband.rateGbps", 10**400), "findings[1]: "),
        (with_("findings.0.reason", "\ud800"), "surrogate"),
        (with_("\ud800", 1), "no field has the name"),
        (with_("findings.0.switchPort.\ud800", 1), "findings[0].switchPort: no field has the name"),
        (b'{"findings": [], "findings": []}', "a field twice"),
        (b'{"findings": NaN}', "NaN is not a number"),
        (b'{"findings": 1e999}', "a list `findings`"),
        (b'{"findings": [' + b"1" * 5000 + b"]}", "not JSON"),
        (b"\xff\xfe", "not UTF-8: byte 0"),
        (b"", "not JSON"),
        (b"[" * 500_000, "nested too deeply"),
        (b'{"findings": [' + b'{"a":' * 20 + b"1" + b"}" * 20 + b"]}", "nested too deeply"),
        (b'{"findings":' * 50_000, "nested too deeply"),
        (b" " * (MAX_MESSAGE_BYTES + 1), "a message has at most 1048576"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(value: Any, words: str) -> None:
    said = why(value)
    assert words in said
    assert len(said) < 500
    assert said.isprintable()


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
NAMES = st.sampled_from(
    [*FINDINGS["properties"], *(n for d in FINDINGS["$defs"].values() for n in d["properties"])]
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(NAMES | st.text(max_size=5), inner, max_size=6)
    ),
    max_leaves=30,
)


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """The message with something else in a place or two."""
    found = json.loads(json.dumps(MESSAGE))
    for _ in range(draw(st.integers(1, 3))):
        at = found
        while True:
            steps = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not steps:
                break
            step = draw(st.sampled_from(steps))
            if isinstance(at[step], dict | list) and at[step] and draw(st.integers(0, 4)):
                at = at[step]
                continue
            if draw(st.booleans()):
                at[step] = draw(JSON)
            elif isinstance(at, dict):
                del at[step]
            break
    return found


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


@given(JSON | mutated())
def test_what_the_schema_allows_is_taken(value: Any) -> None:
    value = json.loads(json.dumps(value), parse_constant=lambda word: 0)
    if SCHEMA.is_valid(value):
        assert len(read(encoded(value)).findings) == len(value["findings"])


@given(st.binary(max_size=300) | JSON.map(encoded) | mutated().map(encoded))
def test_any_bytes_give_a_batch_or_the_error(data: bytes) -> None:
    with contextlib.suppress(BadMessageError):
        assert isinstance(read(data), FindingBatch)


@given(st.data())
def test_bytes_of_a_message_with_one_changed(data: st.DataObject) -> None:
    text = bytearray(json.dumps(MESSAGE).encode())
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadMessageError):
        read(bytes(text))

"""Texts from outside: what cannot be printed becomes blank, in a text and in each field of a message."""

import pytest
from google.protobuf.message import Message
from hyperscout.v1.discovery_pb2 import Hello, Intervals, StreamFindingsRequest
from hyperscout.v1.finding_pb2 import Finding
from hyperscout.v1.placement_pb2 import PlaceRequest
from hyperscout_formats.facts.clean_message import clean
from hyperscout_formats.text.clean_text import cleaned
from hypothesis import given
from hypothesis import strategies as st
from support.planted_text import PLANTED, plant, texts_in, unprintable

PAYLOADS = [field.name for field in Finding.DESCRIPTOR.oneofs_by_name["payload"].fields]


@given(st.text(st.characters()))
def test_a_cleaned_text_is_printable_and_as_long(text: str) -> None:
    found = cleaned(text)
    assert found.isprintable()
    assert len(found) == len(text)
    assert all(a == b or not b.isprintable() for a, b in zip(found, text, strict=True))
    found.encode()


@pytest.mark.parametrize("payload", PAYLOADS)
def test_each_text_of_each_payload_is_cleaned(payload: str) -> None:
    finding = Finding()
    plant(finding)
    value: Message = getattr(finding, payload)
    plant(value)
    value.SetInParent()
    planted = [path for path, text in texts_in(finding) if PLANTED in text]
    assert len(planted) > 3
    clean(finding)
    assert unprintable(finding) == []
    assert [path for path, text in texts_in(finding) if "red" in text] == planted


def test_maps_and_lists_are_cleaned() -> None:
    hello = Hello(probes=["lldp", "a\x1bb"], version="1\n2")
    clean(hello)
    assert (list(hello.probes), hello.version) == (["lldp", "a b"], "1 2")
    request = PlaceRequest()
    workers = request.parts.add().group.parts.add().workers
    for i in range(50):  # enough that an iteration over the changing map would miss some
        workers.resources[f"a\x07{i}"] = f"{i}\x1b"
    workers.resources["b"] = "\u202e1"
    clean(request)
    assert dict(workers.resources) == {"b": " 1"} | {f"a {i}": f"{i} " for i in range(50)}
    intervals = Intervals(interval_s_by_probe={"lldp\n": 3.0})
    clean(intervals)
    assert dict(intervals.interval_s_by_probe) == {"lldp ": 3.0}


def test_a_message_without_texts_stays_as_it_is() -> None:
    request = StreamFindingsRequest()
    request.heartbeat.SetInParent()
    clean(request)
    assert request.WhichOneof("message") == "heartbeat"

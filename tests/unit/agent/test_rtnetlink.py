"""The reader of link changes: messages as the kernel lays them out, and any other bytes."""

import struct

import pytest
from hyperscout_agent.runtime.rtnetlink import LinkEvent, LinkWatch, parse
from hypothesis import given
from hypothesis import strategies as st

NEW, GONE, ADDRESS = 16, 17, 20


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def link(
    name: str,
    *,
    kind: int = NEW,
    carrier: int | None = 1,
    changes: int = 1,
    operstate: int = 6,
    extra: bytes = b"",
) -> bytes:
    body = struct.pack("=BxHiII", 0, 1, 2, 0x11043, 0)
    body += attribute(3, name.encode() + b"\0") + extra + attribute(16, bytes([operstate]))
    if carrier is not None:
        body += attribute(33, bytes([carrier])) + attribute(35, struct.pack("=I", changes))
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body + bytes(-len(body) % 4)


def test_messages() -> None:
    data = (
        link("eth0") + link("eth1", carrier=0, operstate=2, changes=7) + link("eth2", kind=GONE, carrier=None)
    )
    assert parse(data) == [
        LinkEvent("eth0", False, 6, True, 1),
        LinkEvent("eth1", False, 2, False, 7),
        LinkEvent("eth2", True, 6, None, None),
    ]


@pytest.mark.parametrize(
    ("data", "names"),
    [
        pytest.param(b"", [], id="empty"),
        pytest.param(link("eth0")[:20], [], id="cut in the header"),
        pytest.param(link("eth0")[:45], ["eth0"], id="cut in an attribute: what came before counts"),
        pytest.param(
            struct.pack("=IHHII", 4, NEW, 0, 0, 0) + link("eth0"), [], id="a length below its header's"
        ),
        pytest.param(struct.pack("=IHHII", 0, NEW, 0, 0, 0) + link("eth0"), [], id="no length at all"),
        pytest.param(link("eth0", extra=struct.pack("=HH", 0, 5)), ["eth0"], id="an attribute of no length"),
        pytest.param(link("x", kind=ADDRESS) + link("eth0"), ["eth0"], id="other messages between"),
        pytest.param(link(""), [], id="no name"),
        pytest.param(
            struct.pack("=IHHII", 2**32 - 1, NEW, 0, 0, 0) + bytes(40), [], id="a length beyond the data"
        ),
    ],
)
def test_odd_messages(data: bytes, names: list[str]) -> None:
    assert [event.name for event in parse(data)] == names


@given(st.binary(max_size=200), st.integers(0, 200), st.binary(max_size=8))
def test_any_bytes_will_do(junk: bytes, at: int, patch: bytes) -> None:
    parse(junk)
    data = bytearray(link("eth0") * 2)
    data[at : at + len(patch)] = patch
    parse(bytes(data))


def test_only_changes_are_called_back() -> None:
    calls: list[int] = []
    watch = LinkWatch(lambda: calls.append(1))
    for data, total in [
        (link("eth0"), 1),
        (link("eth0"), 1),  # chatter
        (link("eth0", carrier=0, changes=2), 2),
        (link("eth0", carrier=1, changes=3), 3),
        (link("eth0", carrier=1, changes=5), 4),  # a flap in between
        (link("eth1"), 5),
        (link("eth1", kind=GONE, carrier=None), 6),
        (link("never seen", kind=GONE, carrier=None), 6),
        (b"junk", 6),
    ]:
        watch.take(data)
        assert len(calls) == total

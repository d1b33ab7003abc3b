"""Variable bindings off the wire: what each kind of value becomes, and what is refused."""

import pytest
from hyperscout_formats.snmp import varbinds as snmp_varbinds
from hyperscout_formats.snmp.rows import KINDS, Row
from hyperscout_formats.text.errors import FormatError
from hypothesis import given
from hypothesis import strategies as st
from support.snmp_responder import SEQUENCE, integer, oid_bytes, tlv, varbind

OID = (1, 0, 8802, 1, 1, 2, 1, 4, 1, 1, 5, 0, 300, 4_294_967_295)


def bindings(*binds: bytes) -> bytes:
    return tlv(SEQUENCE, b"".join(binds))


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (integer(-5), "integer", -5),
        (integer(2**31 - 1), "integer", 2**31 - 1),
        (tlv(0x04, b"\x00text\xff"), "string", b"\x00text\xff"),
        (tlv(0x04, b"x" * 300), "string", b"x" * 300),
        (tlv(0x04, b""), "string", b""),
        (tlv(0x06, oid_bytes((1, 3, 6, 1, 4, 1, 8072))), "oid", (1, 3, 6, 1, 4, 1, 8072)),
        (tlv(0x06, b"\x88\x37\x03"), "oid", (2, 999, 3)),  # X.690, 8.19.5
        (tlv(0x40, bytes([10, 0, 0, 1])), "address", bytes([10, 0, 0, 1])),
        (integer(2**32 - 1, 0x41), "counter", 2**32 - 1),
        (tlv(0x41, b"\xff\xff\xff\xff"), "counter", 2**32 - 1),
        (integer(400_000, 0x42), "gauge", 400_000),
        (integer(7, 0x43), "ticks", 7),
        (tlv(0x44, b"\x9f\x78\x04"), "opaque", b"\x9f\x78\x04"),
        (integer(2**64 - 1, 0x46), "counter64", 2**64 - 1),
    ],
)
def test_each_kind(value: bytes, kind: str, expected: object) -> None:
    assert snmp_varbinds.parse(bindings(varbind(OID, value))) == [Row(OID, kind, expected)]
    assert kind in KINDS


@pytest.mark.parametrize("tag", [0x80, 0x81, 0x82, 0x05])
def test_what_has_no_value_ends_it(tag: int) -> None:
    binds = bindings(varbind(OID, integer(1)), varbind(OID, tlv(tag, b"")), varbind(OID, integer(2)))
    assert [row.value for row in snmp_varbinds.parse(binds)] == [1]


def test_none_at_all() -> None:
    assert snmp_varbinds.parse(bindings()) == []


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "truncated"),
        (b"\x30", "truncated"),
        (b"\x04\x00", "expected tag 0x30, found 0x4"),
        (b"\x30\x85\x01\x01\x01\x01\x01", "length of 1 to 4 octets, found 5"),
        (b"\x30\x80", "length of 1 to 4 octets, found 0"),
        (b"\x30\x05\x30", "truncated"),
        (bindings() + b"\0", "length of the variable bindings is wrong"),
        (
            bindings(tlv(SEQUENCE, tlv(6, b"\x2b") + integer(1) + integer(2))),
            "length of a variable binding is wrong",
        ),
        (bindings(tlv(SEQUENCE, tlv(6, b"") + integer(1))), "an invalid OID"),
        (bindings(tlv(SEQUENCE, tlv(6, b"\x2b\x81") + integer(1))), "an invalid OID"),
        (bindings(tlv(SEQUENCE, tlv(6, b"\x2b" + b"\1" * 200) + integer(1))), "an OID that is too long"),
        (bindings(tlv(SEQUENCE, tlv(6, b"\x2b" + b"\xff" * 6 + b"\1") + integer(1))), "too long"),
        (bindings(varbind(OID, tlv(2, b""))), "number of 1 to 9 octets, found 0"),
        (bindings(varbind(OID, tlv(2, b"\1" * 10))), "number of 1 to 9 octets, found 10"),
        (bindings(varbind(OID, tlv(0x47, b"x"))), "a type that SNMP does not define"),
    ],
)
def test_what_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        snmp_varbinds.parse(data, "10.0.0.1")


OIDS = st.tuples(st.sampled_from([0, 1]), st.integers(0, 39)).flatmap(
    lambda head: st.lists(st.integers(0, 2**32 - 1), max_size=20).map(lambda tail: (*head, *tail))
)
VALUES = st.one_of(
    st.integers(-(2**31), 2**31 - 1).map(lambda n: (integer(n), n)),
    st.integers(0, 2**64 - 1).map(lambda n: (integer(n, 0x46), n)),
    st.binary(max_size=400).map(lambda text: (tlv(4, text), text)),
)


@given(st.lists(st.tuples(OIDS, VALUES), max_size=20))
def test_what_was_written_is_read(rows: list[tuple[tuple[int, ...], tuple[bytes, object]]]) -> None:
    read = snmp_varbinds.parse(bindings(*(varbind(oid, value) for oid, (value, _) in rows)))
    assert [(row.oid, row.value) for row in read] == [(oid, value) for oid, (_, value) in rows]


@given(st.binary(max_size=200), st.integers(0, 60), st.binary(max_size=3))
def test_any_octets_give_rows_or_one_named_error(data: bytes, at: int, other: bytes) -> None:
    whole = bindings(varbind(OID, tlv(4, b"text")), varbind(OID, integer(5)))
    for octets in (data, bindings(data), whole[:at] + other + whole[at + len(other) :], whole[:at]):
        try:
            rows = snmp_varbinds.parse(octets)
        except FormatError:
            continue
        assert all(row.kind in KINDS for row in rows)

"""SNMPv2c messages: requests as a switch reads them, and responses of any kind."""

import pytest
from hyperscout_formats.snmp.message import get_bulk, response
from hyperscout_formats.text.errors import FormatError
from hypothesis import given
from hypothesis import strategies as st
from pyasn1.codec.ber import decoder
from pysnmp.proto.api import v2c
from support.snmp_responder import OCTETS, RESPONSE, Request, answer, integer, request, tlv, varbind

OID = (1, 0, 8802, 1, 1, 2, 1, 4, 1, 1, 5)
ARCS = st.lists(st.integers(0, 2**32 - 1), max_size=20)
NUMBERS = st.integers(0, 2**31 - 1)


@given(st.binary(max_size=300), NUMBERS, ARCS, st.integers(1, 200))
def test_a_request_is_read_as_it_was_meant(
    community: bytes, number: int, arcs: list[int], repetitions: int
) -> None:
    """By pysnmp and by the tests' own switch."""
    oid = (1, 3, *arcs)
    data = get_bulk(community, number, oid, repetitions)
    assert request(data) == Request(1, community, 0xA5, number, 0, repetitions, (oid,))
    message, rest = decoder.decode(data, asn1Spec=v2c.Message())
    assert rest == b""
    assert bytes(v2c.apiMessage.get_community(message)) == community
    pdu = v2c.apiMessage.get_pdu(message)
    assert (int(v2c.apiBulkPDU.get_request_id(pdu)), int(v2c.apiBulkPDU.get_max_repetitions(pdu))) == (
        number,
        repetitions,
    )
    assert [tuple(name) for name, _ in v2c.apiBulkPDU.get_varbinds(pdu)] == [oid]


def asked(number: int = 7, version: int = 1) -> Request:
    return Request(version, b"open", 0xA5, number, 0, 10, (OID,))


@given(NUMBERS)
def test_a_response_is_read(number: int) -> None:
    found = response(answer(asked(number), [varbind((*OID, 1), tlv(OCTETS, b"leaf"))]))
    assert (found.community, found.number, found.error) == (b"open", number, "")
    assert [(row.oid, row.value) for row in found.rows] == [((*OID, 1), b"leaf")]


@pytest.mark.parametrize(
    ("status", "error"), [(1, "tooBig"), (5, "genErr"), (16, "authorizationError"), (99, "error 99")]
)
def test_an_error_has_the_name_of_the_standard_and_no_rows(status: int, error: str) -> None:
    found = response(answer(asked(), [varbind(OID, b"\x05\x00")], status))
    assert (found.error, found.rows) == (error, [])


WHOLE = answer(asked(), [varbind((*OID, 1), tlv(OCTETS, b"leaf"))])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x30\x84\xff\xff\xff\xff",
        answer(asked(version=0), []),
        answer(asked(version=3), []),
        WHOLE.replace(bytes((RESPONSE,)), b"\xa8"),  # a Report
        get_bulk(b"open", 7, OID, 10),  # our own request, sent back
        tlv(0x30, integer(1) + tlv(OCTETS, b"open") + tlv(RESPONSE, tlv(2, b"x" * 9))),
    ],
)
def test_what_is_no_response_is_said_so(data: bytes) -> None:
    with pytest.raises(FormatError):
        response(data)


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))
def test_a_damaged_response_is_read_or_refused(at: int, octet: int) -> None:
    for data in (WHOLE[:at], WHOLE[:at] + bytes((octet,)) + WHOLE[at + 1 :]):
        try:
            response(data)
        except FormatError:
            continue


@given(st.binary(max_size=200))
def test_octets_of_any_kind_are_read_or_refused(data: bytes) -> None:
    try:
        response(data)
    except FormatError:
        return


def test_a_long_community_and_a_response_that_is_longer_than_its_message() -> None:
    community = b"c" * 300
    asked = request(get_bulk(community, 1, OID, 1))
    assert asked.community == community
    whole = answer(asked, [varbind(OID, tlv(OCTETS, b"x"))])
    assert response(whole).community == community
    # The PDU's own length names one octet more than there is.
    at = whole.rindex(bytes((RESPONSE,)), 0, whole.index(integer(1), 310))
    longer = whole[: at + 1] + bytes((whole[at + 1] + 1,)) + whole[at + 2 :]
    with pytest.raises(FormatError):
        response(longer)

"""Which datagrams count as the answer to a request over SNMPv2c."""

import asyncio
from typing import Any

import pytest
from hyperscout_agent.snmp.outcomes import Answer, ClientStats, SilentError
from hyperscout_agent.snmp.v2c import _Socket

COMMUNITY = b"ours-3f9a"
SWITCH, STRANGER = ("192.0.2.1", 161), ("192.0.2.66", 161)


class FakeTransport:
    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def sendto(self, data: bytes, _: Any) -> None:
        self.sent.append(data)


def response_to(request: bytes) -> bytes:
    """The request as a response: its PDU has the same fields."""
    return request.replace(COMMUNITY + b"\xa5", COMMUNITY + b"\xa2", 1)


def other_number(data: bytes) -> bytes:
    at = data.index(COMMUNITY) + len(COMMUNITY) + 2 + 2  # the tags and lengths of the PDU and the number
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


async def asked(answers: list[bytes] | None = None) -> tuple[Answer, ClientStats]:
    """`answers`: sent by a stranger before, else the switch's own. Raises SilentError."""
    stats, transport = ClientStats(), FakeTransport()
    found = _Socket(stats)
    found.connection_made(transport)
    asking = asyncio.create_task(found.ask(SWITCH, COMMUNITY, ((1, 3, 6), 10), 0.0, 0))
    while not transport.sent:
        await asyncio.sleep(0)
    right = response_to(transport.sent[0])
    wrong = [right.replace(COMMUNITY, b"other-3f9"), other_number(right), right[:-1], transport.sent[0], b""]
    for data in wrong if answers is None else answers:
        found.datagram_received(data, STRANGER)
    if answers is None:
        return await asking, stats
    found.datagram_received(right, SWITCH)
    found.datagram_received(right, SWITCH)
    return await asking, stats


async def test_the_answer_has_the_number_and_the_community_of_the_request() -> None:
    assert (await asked([]))[0] == Answer("", [])


async def test_no_other_datagram_ends_a_request() -> None:
    with pytest.raises(SilentError):
        await asked()

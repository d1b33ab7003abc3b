"""The client against switches that answer, misbehave, or are not there: it ends, and says why in words."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hyperscout_agent.snmp.access import Community, Secret, User
from hyperscout_agent.snmp.client import SnmpClient
from hyperscout_agent.snmp.outcomes import ClientStats, SwitchError
from hyperscout_agent.snmp.walk import Walk
from support.snmp_responder import (
    INTEGER,
    MISBEHAVIOURS,
    OCTETS,
    Answers,
    Request,
    Table,
    answer,
    integer,
    responding,
    tlv,
    varbind,
)
from support.waiting import TIMEOUT_S

COMMUNITY = "open-sesame-3f9a"
OURS = Community(Secret(COMMUNITY), "127.0.0.0/8")
LOCAL, REMOTE = (1, 0, 8802, 1, 1, 2, 1, 3), (1, 0, 8802, 1, 1, 2, 1, 4, 1, 1, 5)
ADDRESS = "127.0.0.1"


def table(rows: int = 100) -> Table:
    values = {(*LOCAL, 2, 0): tlv(OCTETS, b"chassis"), (*LOCAL, 1, 0): integer(4)}
    values |= {(*REMOTE, 0, port, 1): tlv(OCTETS, b"neighbour %d" % port) for port in range(1, rows + 1)}
    return Table(values | {(1, 3, 6, 1): tlv(INTEGER, b"\1")})


@asynccontextmanager
async def client(port: int, stats: ClientStats, **more: float) -> AsyncIterator[SnmpClient]:
    given = {"timeout_s": 0.3, "retries": 2, **more}  # a busy machine is no dead switch
    made = SnmpClient(port=port, stats=stats, **given)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        await made.close()


def yes(_: Walk) -> bool:
    return True


async def walked(
    switch: Table | Answers, stats: ClientStats | None = None, community: str = COMMUNITY
) -> Walk | None:
    with responding({ADDRESS: switch}, community) as responder:
        async with client(responder.port, stats or ClientStats()) as asker, asyncio.timeout(TIMEOUT_S):
            return await asker.walk(ADDRESS, OURS, (LOCAL, REMOTE), yes)


async def test_all_rows_of_the_wanted_parts_come() -> None:
    stats = ClientStats()
    walk = await walked(table(), stats)
    assert walk is not None
    found = {row.oid: (row.kind, row.value) for row in walk.rows}
    assert len(found) == 102
    assert found[*LOCAL, 1, 0] == ("integer", 4)
    assert found[*REMOTE, 0, 100, 1] == ("string", b"neighbour 100")
    assert stats.rows == 102
    assert 4 <= stats.requests <= 6
    assert not walk.problems


async def test_a_switch_that_is_known_already_is_not_walked() -> None:
    stats = ClientStats()
    with responding({ADDRESS: table()}, COMMUNITY) as responder:
        async with client(responder.port, stats) as asker:
            assert await asker.walk(ADDRESS, OURS, (LOCAL, REMOTE), lambda walk: len(walk) == 0) is None
    assert stats.requests == 1


async def test_another_community_is_told_apart_from_nothing_by_what_to_look_at() -> None:
    with pytest.raises(SwitchError) as caught:
        await walked(table(), community="another")
    assert "no answer in 0.9 s" in str(caught.value)
    assert "the community of snmp.access for 127.0.0.0/8 is not its own" in str(caught.value)


@pytest.mark.parametrize("name", sorted(MISBEHAVIOURS))
async def test_a_switch_that_misbehaves_costs_time_and_nothing_else(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Never another error, nothing in the log, least of all the community; and an end."""
    caplog.set_level(logging.DEBUG)
    with responding({ADDRESS: MISBEHAVIOURS[name], "127.0.0.2": table()}, COMMUNITY) as responder:
        # A flood costs others some datagrams: they are asked again.
        more = {"max_rows": 1000, "retries": 5 if name == "flooding" else 2}
        async with client(responder.port, ClientStats(), **more) as asker, asyncio.timeout(TIMEOUT_S):
            both = (
                asker.walk(ADDRESS, OURS, (LOCAL, REMOTE), yes),
                asker.walk("127.0.0.2", OURS, (REMOTE,), yes),
            )
            bad, good = await asyncio.gather(*both, return_exceptions=True)
    assert isinstance(good, Walk)
    assert len(good) == 100
    assert isinstance(bad, Walk | SwitchError)
    if isinstance(bad, Walk):
        assert len(bad) < 10
    loud = [r for r in caplog.records if r.levelno > logging.DEBUG]
    assert not loud
    assert COMMUNITY not in caplog.text
    assert COMMUNITY not in str(bad)


async def test_a_datagram_that_breaks_the_library_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """The loop would log what was called with what, and so the community in it."""

    def strange(asked: Request) -> list[bytes]:
        whole = answer(asked, [varbind(oid, tlv(OCTETS, b"x")) for oid in asked.oids])
        return [b"\xbf\x1f" + whole[2:]]

    caplog.set_level(logging.DEBUG)
    stats = ClientStats()
    with pytest.raises(SwitchError, match="no answer"):
        await walked(strange, stats)
    assert stats.garbage == 3  # each time it was asked
    assert [r for r in caplog.records if r.levelno > logging.DEBUG] == []
    assert COMMUNITY not in caplog.text


async def test_an_answer_that_is_too_long_for_the_path_is_asked_for_in_pieces() -> None:
    """Long answers are cut up on the way, and the pieces get lost."""
    whole = table(40)

    def lossy(asked: Request) -> list[bytes]:
        datagram = whole.answer(asked)
        return [datagram] if len(datagram) < 300 else []

    begun: list[bool] = []

    def first_whole(asked: Request) -> list[bytes]:
        if not begun:
            begun.append(True)
            return [whole.answer(Request(*asked_with(asked, 2)))]
        return lossy(asked)

    walk = await walked(first_whole)
    assert walk is not None
    assert len(walk) == 42


def asked_with(
    asked: Request, repetitions: int
) -> tuple[int, bytes, int, int, int, int, tuple[tuple[int, ...], ...]]:
    return (asked.version, asked.community, asked.kind, asked.number, 0, repetitions, asked.oids)


async def test_too_big_is_asked_for_in_pieces() -> None:
    whole = table(40)

    def small(asked: Request) -> list[bytes]:
        if asked.repetitions > 8:
            return [answer(asked, [varbind(oid, b"\x05\x00") for oid in asked.oids], 1)]
        return [whole.answer(asked)]

    walk = await walked(small)
    assert walk is not None
    assert len(walk) == 42
    assert not walk.problems


async def test_a_view_that_shows_nothing_is_told() -> None:
    def closed(asked: Request) -> list[bytes]:
        return [answer(asked, [varbind(oid, b"\x05\x00") for oid in asked.oids], 16)]

    with pytest.raises(SwitchError, match="authorizationError: its view does not let the community"):
        await walked(closed)


async def test_a_switch_that_stops_in_the_middle() -> None:
    whole, left = table(200), [3]

    def dying(asked: Request) -> list[bytes]:
        left[0] -= 1
        return [whole.answer(asked)] if left[0] > 0 else []

    with pytest.raises(SwitchError, match="in the middle of it"):
        await walked(dying)


async def test_no_secret_is_in_what_goes_wrong_inside() -> None:
    """Whatever pysnmp says about what it cannot send: it may quote it."""
    odd = User("u", "SHA-256", Secret("authsecret-77"), "AES", Secret("privsecret-77"), "127.0.0.0/8")
    async with client(1, ClientStats()) as asker:
        with pytest.raises(SwitchError) as caught:
            await asker.walk("not an address", odd, (LOCAL,), yes)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


async def test_a_secret_is_not_in_its_text() -> None:
    user = User("u", "SHA", Secret("authsecret-77"), "AES", Secret("privsecret-77"), "r")
    assert "secret-77" not in f"{user} {user!r} {OURS!r}"
    assert COMMUNITY not in repr(OURS)

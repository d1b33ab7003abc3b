"""What is made of an API server's answers about tokens and rights, be they by the book or not."""

import asyncio
import logging
from typing import Any

import pytest
from hyperscout_collector.identity.callers import (
    AskLaterError,
    NotAllowedError,
    UnknownCallerError,
    User,
)
from hyperscout_collector.identity.reviews import TOKEN_REVIEWS, Reviews
from hyperscout_kubernetes.errors import ForbiddenError, UnreachableError
from support.identities import FakeReviews, jwt
from support.waiting import until

NOW_S = 1_000_000.0


class Rig:
    """Reviews whose two clocks stand still."""

    def __init__(self, server: FakeReviews) -> None:
        self.server = server
        self.passed_s = 0.0
        self.reviews = Reviews(
            server, "hyperscout", clock=lambda: self.passed_s, now_s=lambda: NOW_S + self.passed_s
        )


@pytest.fixture
def server() -> FakeReviews:
    token = jwt(aud=["hyperscout"], exp=NOW_S + 3600)
    ann = {"username": "ann", "uid": "u1", "groups": ["g"], "extra": {"k": ["v"]}}
    return FakeReviews({token: ann, "opaque": ann}, {("ann", "get")})


@pytest.fixture
def rig(server: FakeReviews) -> Rig:
    return Rig(server)


GOOD = jwt(aud=["hyperscout"], exp=NOW_S + 3600)


async def test_a_token_is_whose_the_server_says(rig: Rig) -> None:
    assert await rig.reviews.user(GOOD) == User("ann", "u1", ("g",), {"k": ["v"]})
    assert rig.server.asked == [(TOKEN_REVIEWS, {"token": GOOD, "audiences": ["hyperscout"]})]


async def test_rights_are_asked_with_all_that_is_known_of_the_user(rig: Rig) -> None:
    user = await rig.reviews.user(GOOD)
    await rig.reviews.allow(user, GOOD, "get")
    _, spec = rig.server.asked[-1]
    assert (spec["user"], spec["uid"], spec["groups"], spec["extra"]) == ("ann", "u1", ["g"], {"k": ["v"]})
    with pytest.raises(NotAllowedError, match=r"ann may not update hypernodes\.topology\.volcano\.sh"):
        await rig.reviews.allow(user, GOOD, "update")


@pytest.mark.parametrize(
    "status",
    [
        {},
        None,
        "authenticated",
        {"authenticated": False, "user": {"username": "ann"}, "audiences": ["hyperscout"]},
        {"authenticated": "true", "user": {"username": "ann"}, "audiences": ["hyperscout"]},
        {"authenticated": True, "user": {"username": "ann"}},
        {"authenticated": True, "user": {"username": "ann"}, "audiences": ["https://kubernetes.default.svc"]},
        {"authenticated": True, "user": {"username": ""}, "audiences": ["hyperscout"]},
        {"authenticated": True, "audiences": ["hyperscout"]},
    ],
)
async def test_less_than_a_whole_yes_is_a_no(rig: Rig, status: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def review(path: str, body: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        return {"status": status}

    monkeypatch.setattr(rig.server, "review", review)
    with pytest.raises(UnknownCallerError):
        await rig.reviews.user(GOOD)
    with pytest.raises(NotAllowedError):
        await rig.reviews.allow(User("ann"), GOOD, "get")


@pytest.mark.parametrize(
    ("exp", "stands_s"),
    [(NOW_S + 3600, 60.0), (NOW_S + 20, 20.0), (NOW_S - 1, 0.0), (None, 60.0)],
    ids=["long", "shorter than what is kept", "over by our clock", "unknown"],
)
async def test_a_yes_stands_a_minute_but_never_longer_than_the_token(
    server: FakeReviews, exp: float | None, stands_s: float
) -> None:
    rig = Rig(server)
    token = "opaque" if exp is None else jwt(exp=exp)
    server.users[token] = {"username": "ann"}
    await rig.reviews.user(token)
    if stands_s:
        rig.passed_s = stands_s - 0.1
        await rig.reviews.user(token)
        assert server.count(TOKEN_REVIEWS) == 1
    rig.passed_s = stands_s
    await rig.reviews.user(token)
    assert server.count(TOKEN_REVIEWS) == 2


async def test_a_deleted_token_is_good_for_a_minute_at_most(rig: Rig) -> None:
    await rig.reviews.user(GOOD)
    rig.server.users.clear()
    rig.passed_s = 60.0
    with pytest.raises(UnknownCallerError, match="does not know this token"):
        await rig.reviews.user(GOOD)


async def test_a_no_stands_for_seconds(rig: Rig) -> None:
    stranger = jwt(aud=["hyperscout"])
    for _ in range(3):
        with pytest.raises(UnknownCallerError):
            await rig.reviews.user(stranger)
        with pytest.raises(NotAllowedError):
            await rig.reviews.allow(User("bob"), stranger, "get")
    assert len(rig.server.asked) == 2
    rig.server.users[stranger] = {"username": "bob"}
    rig.server.rights.add(("bob", "get"))
    rig.passed_s = 5.0
    await rig.reviews.allow(await rig.reviews.user(stranger), stranger, "get")


async def test_rights_of_one_token_or_verb_are_not_those_of_another(rig: Rig) -> None:
    rig.server.rights.add(("ann", "update"))
    await rig.reviews.allow(User("ann"), GOOD, "update")
    with pytest.raises(NotAllowedError):
        await rig.reviews.allow(User("bob"), "opaque", "update")
    rig.server.rights.clear()
    with pytest.raises(NotAllowedError):
        await rig.reviews.allow(User("ann"), GOOD, "get")


@pytest.mark.parametrize(
    ("trouble", "said", "logged"),
    [
        (UnreachableError("POST: refused"), "request to the API server failed", "POST: refused"),
        (ForbiddenError("POST: forbidden"), "does not permit the collector", "system:auth-delegator"),
        (TimeoutError(), "no response of the API server within", "TimeoutError"),
    ],
)
async def test_while_the_server_is_away_no_caller_is_let_in_and_nothing_is_kept(
    rig: Rig, trouble: Exception, said: str, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig.server.trouble = trouble
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            with pytest.raises(AskLaterError, match=said):
                await rig.reviews.user(GOOD)
            with pytest.raises(AskLaterError, match=said):
                await rig.reviews.allow(User("ann"), GOOD, "get")
    assert [logged in record.message for record in caplog.records] == [True], "once, not once a caller"
    assert rig.reviews.problem is not None
    rig.server.trouble = None
    assert (await rig.reviews.user(GOOD)).name == "ann"
    assert rig.reviews.problem is None


async def test_a_server_that_hangs_is_given_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hyperscout_collector.identity.reviews._TIMEOUT_S", 0.0)
    rig.server.hangs = True
    with pytest.raises(AskLaterError, match="no response of the API server"):
        await rig.reviews.user(GOOD)


async def test_few_requests_are_under_way_at_once(rig: Rig) -> None:
    rig.server.hangs = True
    tasks = [asyncio.create_task(rig.reviews.user(f"token-{i}")) for i in range(50)]
    await until(lambda: len(rig.server.asked) >= 8)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(rig.server.asked) == 8
    await rig.reviews.close()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_tokens_stand_in_no_message_and_no_log(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    token = jwt(aud=["other"], exp=NOW_S - 7)
    said = []
    with caplog.at_level(logging.DEBUG):
        for trouble in (None, UnreachableError("away")):
            rig.server.trouble = trouble
            rig.passed_s += 10
            with pytest.raises((UnknownCallerError, AskLaterError)) as refused:
                await rig.reviews.user(token)
            said.append(str(refused.value))
    everything = " ".join([*said, caplog.text])
    assert token.split(".")[1] not in everything
    assert token not in everything

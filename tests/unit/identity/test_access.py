"""Which caller may stream and which may call, by what it showed; and what follows when time has passed."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from hyperscout_collector.identity import access as access_module
from hyperscout_collector.identity.access import Access, Gate
from hyperscout_collector.identity.callers import (
    NODE_NAME,
    AccessError,
    AnotherNameError,
    AskLaterError,
    NotAllowedError,
    Shown,
    UnknownCallerError,
    reports_for,
    shown,
    spread_s,
)
from hyperscout_collector.identity.reviews import TOKEN_REVIEWS, Reviews
from hyperscout_kubernetes.errors import UnreachableError
from support.identities import AGENT, AGENTS, FakeReviews, jwt

NOW_S = 1_000_000.0
AGENT_TOKEN = jwt(aud=["hyperscout"], exp=NOW_S + 600)
ANN = jwt(aud=["hyperscout"], exp=NOW_S + 600, sub="ann")


class AbortedError(Exception):
    """What gRPC's `abort` raises, with what was said."""


class Context:
    """As much of a call as is looked at."""

    def __init__(self, token: str = "", auth: dict[str, list[bytes]] | None = None) -> None:
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._auth = auth or {}

    def auth_context(self) -> dict[str, list[bytes]]:
        return self._auth

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise AbortedError(code, details)


def shown_by(token: str = "") -> Shown:
    return shown({}, Context(token).invocation_metadata())


class World:
    """An `Access` whose clock stands still, over an API server that knows an agent and a reader."""

    def __init__(self) -> None:
        self.now_s = NOW_S
        agent = {"username": AGENT, "extra": {NODE_NAME: ["n1"]}}
        self.server = FakeReviews({AGENT_TOKEN: agent, ANN: {"username": "ann"}}, {("ann", "get")})
        reviews = Reviews(self.server, "hyperscout", clock=lambda: self.now_s, now_s=lambda: self.now_s)
        self.access = Access(reviews, AGENTS, now_s=lambda: self.now_s)


@pytest.fixture
def world() -> World:
    return World()


# --- agents


async def test_an_agent_is_known_until_its_token_ends(world: World) -> None:
    caller = await world.access.reporter(Context(AGENT_TOKEN), "n1")
    assert str(caller) == "node n1"
    assert caller.until_s == NOW_S + 600 + spread_s("n1")
    assert not world.access.over(caller)


async def test_a_token_that_does_not_say_when_it_ends_is_looked_at_again(world: World) -> None:
    world.server.users["opaque"] = world.server.users[AGENT_TOKEN]
    caller = await world.access.reporter(Context("opaque"), "n1")
    assert caller.until_s == NOW_S + 3600 + spread_s("n1")


async def test_a_token_that_lasts_for_years_is_looked_at_as_often(world: World) -> None:
    """It may have been taken back long before it ends."""
    token = jwt(aud=["hyperscout"], exp=NOW_S + 1e8)
    world.server.users[token] = world.server.users[AGENT_TOKEN]
    caller = await world.access.reporter(Context(token), "n1")
    assert caller.until_s == NOW_S + 3600 + spread_s("n1")
    world.now_s = caller.until_s
    del world.server.users[token]
    with pytest.raises(AskLaterError, match="present a new one"):
        await world.access.still_reports(caller)


@pytest.mark.parametrize(
    ("context", "error"),
    [
        (Context(), UnknownCallerError),
        (Context("stranger"), UnknownCallerError),
        (Context(ANN), NotAllowedError),
    ],
    ids=["no token", "a stranger", "a reader"],
)
async def test_others_report_nothing(world: World, context: Context, error: type[AccessError]) -> None:
    with pytest.raises(error):
        await world.access.reporter(context, "n1")


async def test_an_agent_reads_nothing(world: World) -> None:
    with pytest.raises(NotAllowedError, match="may not get"):
        await world.access.admit(shown_by(AGENT_TOKEN), "get")


async def test_an_agent_whose_time_is_over_connects_again(world: World) -> None:
    caller = await world.access.reporter(Context(AGENT_TOKEN), "n1")
    world.now_s = caller.until_s
    assert world.access.over(caller)
    del world.server.users[AGENT_TOKEN]
    with pytest.raises(AskLaterError, match="token of node n1 has expired: present a new") as end:
        await world.access.still_reports(caller)
    assert end.value.code == grpc.StatusCode.UNAVAILABLE, "it comes back soon"


async def test_an_agent_that_is_still_good_by_the_server_s_clock_goes_on(world: World) -> None:
    caller = await world.access.reporter(Context(AGENT_TOKEN), "n1")
    world.now_s = caller.until_s
    again = await world.access.still_reports(caller)
    assert (again.name, again.until_s) == ("n1", world.now_s + 30)


async def test_an_api_server_that_is_away_silences_no_agent(world: World) -> None:
    caller = await world.access.reporter(Context(AGENT_TOKEN), "n1")
    world.server.trouble = UnreachableError("away")
    for _ in range(5):
        world.now_s = caller.until_s
        caller = await world.access.still_reports(caller)
        assert caller.until_s == world.now_s + 30
    with pytest.raises(AskLaterError):
        await world.access.reporter(Context(AGENT_TOKEN), "n1")
    world.server.trouble = None
    del world.server.users[AGENT_TOKEN]
    world.now_s = caller.until_s
    with pytest.raises(AskLaterError, match="present a new"):
        await world.access.still_reports(caller)


async def test_a_token_that_now_says_another_node_is_another_caller(world: World) -> None:
    caller = await world.access.reporter(Context(AGENT_TOKEN), "n1")
    world.now_s = caller.until_s
    world.server.users[AGENT_TOKEN]["extra"] = {NODE_NAME: ["n2"]}
    assert (await world.access.still_reports(caller)).name == "n2"


async def test_the_api_server_of_a_cluster_alone_reviews_the_tokens_of_its_agents() -> None:
    """Both clusters have a node n1, and an agent may report for the node of its own cluster only."""
    servers = {name: FakeReviews() for name in ("", "east", "west")}
    reviews = {
        name: Reviews(server, "hyperscout", clock=lambda: NOW_S, now_s=lambda: NOW_S)
        for name, server in servers.items()
    }
    access = Access(reviews.pop(""), AGENTS, "hyperscout:fabric", clusters=reviews, now_s=lambda: NOW_S)
    token = servers["east"].agent("n1", exp=NOW_S + 600)
    caller = await access.reporter(Context(token), "east/n1")
    reports_for(caller, "east/n1")
    for other in ("n1", "west/n1", "east/n2"):
        with pytest.raises(AnotherNameError):
            reports_for(caller, other)
    for other in ("n1", "west/n1", "switch/n1", "fabric/east"):
        with pytest.raises(UnknownCallerError):
            await access.reporter(Context(token), other)
    assert (await access.still_reports(caller)).name == "east/n1"
    assert [server.count(TOKEN_REVIEWS) for server in servers.values()] == [1, 1, 1]
    fabric = servers["east"].user("system:serviceaccount:hyperscout:fabric")
    with pytest.raises(NotAllowedError):
        await access.reporter(Context(fabric), "east/n1")


async def test_an_agent_of_a_cluster_whose_api_server_is_away_goes_on() -> None:
    servers = FakeReviews(), FakeReviews()
    own, east = (
        Reviews(server, "hyperscout", clock=lambda: NOW_S, now_s=lambda: NOW_S) for server in servers
    )
    now_s = [NOW_S]
    access = Access(own, AGENTS, clusters={"east": east}, now_s=lambda: now_s[0])
    caller = await access.reporter(Context(servers[1].agent("n1", exp=NOW_S + 60)), "east/n1")
    now_s[0] = caller.until_s
    east._users._kept.clear()
    servers[1].trouble = UnreachableError("away")
    assert (await access.still_reports(caller)).name == "east/n1"
    with pytest.raises(AskLaterError):
        await access.reporter(Context(servers[1].agent("n2", exp=NOW_S + 600)), "east/n2")
    own_agent = await access.reporter(Context(servers[0].agent("n1", exp=NOW_S + 600)), "n1")
    assert own_agent.name == "n1", "the other cluster goes on"


async def test_without_authentication_any_caller_may() -> None:
    access = Access()
    caller = await access.reporter(Context(), "n1")
    assert caller.kind == "anonymous"
    assert not access.over(caller)
    assert (await access.admit(shown_by(), "update")).kind == "anonymous"


async def test_an_unreadable_certificate_is_refused() -> None:
    auth = {"x509_pem_cert": [b"junk"], "peer_uri": [b"hyperscout://admin/ann"]}
    with pytest.raises(UnknownCallerError, match="cannot be read"):
        await Access().reporter(Context(auth=auth), "n1")
    with pytest.raises(UnknownCallerError, match="cannot be read"):
        await Access().admit(shown(auth, ()), "get")


# --- other callers


async def test_a_reader_is_looked_at_again_while_it_follows(world: World) -> None:
    caller = await world.access.admit(shown_by(ANN), "get")
    assert (str(caller), caller.until_s) == ("user ann", NOW_S + 60)
    world.now_s += 60
    caller = await world.access.still_admitted(caller, "get")
    assert caller.until_s == world.now_s + 60
    world.server.trouble = UnreachableError("away")
    world.now_s += 60
    caller = await world.access.still_admitted(caller, "get")
    assert caller.until_s == world.now_s + 30
    world.server.trouble = None
    world.server.rights.clear()
    world.now_s += 60
    with pytest.raises(NotAllowedError):
        await world.access.still_admitted(caller, "get")
    world.server.users.clear()
    world.now_s += 60
    with pytest.raises(AskLaterError, match="expired: present a new"):
        await world.access.still_admitted(caller, "get")


class Details:
    def __init__(self, method: str) -> None:
        self.method = method
        self.invocation_metadata = ()


async def handler(world: World, method: str, wanted: Any) -> Any:
    async def find(details: Any) -> Any:
        return wanted

    return await Gate(world.access).intercept_service(find, Details(method))  # type: ignore[arg-type]


async def one(request: Any, context: Any) -> str:
    return f"one {request}"


async def many(request: Any, context: Any) -> AsyncIterator[str]:
    for number in range(3):
        yield f"{number} {request}"


@pytest.mark.parametrize(
    ("make", "behaviour", "name"),
    [
        (grpc.unary_unary_rpc_method_handler, one, "unary_unary"),
        (grpc.stream_unary_rpc_method_handler, one, "stream_unary"),
        (grpc.unary_stream_rpc_method_handler, many, "unary_stream"),
        (grpc.stream_stream_rpc_method_handler, many, "stream_stream"),
    ],
)
async def test_every_kind_of_method_is_guarded(world: World, make: Any, behaviour: Any, name: str) -> None:
    decode, encode = (lambda data: data), (lambda message: message)
    guarded = await handler(
        world, "/hyperscout.v1.TopologyService/GetStatus", make(behaviour, decode, encode)
    )
    assert (guarded.request_deserializer, guarded.response_serializer) == (decode, encode)

    async def call(context: Context) -> list[str]:
        answer = getattr(guarded, name)("x", context)
        return [part async for part in answer] if behaviour is many else [await answer]

    assert await call(Context(ANN)) == (["0 x", "1 x", "2 x"] if behaviour is many else ["one x"])
    for context in (Context(), Context("stranger"), Context(AGENT_TOKEN)):
        with pytest.raises(AbortedError):
            await call(context)


@pytest.mark.parametrize(
    ("method", "open_to_all"),
    [
        ("/grpc.health.v1.Health/Check", True),
        ("/hyperscout.v1.DiscoveryService/StreamFindings", True),  # which asks by itself
        ("/hyperscout.v1.TopologyService/Approve", False),
        ("/unheard.of/Method", False),
    ],
)
async def test_what_is_not_guarded(world: World, method: str, open_to_all: bool) -> None:
    wanted = grpc.unary_unary_rpc_method_handler(one)
    assert ((await handler(world, method, wanted)) is wanted) == open_to_all
    assert await handler(world, method, None) is None


async def test_a_watch_ends_when_its_reader_loses_the_right(world: World) -> None:
    closed = []

    async def follow(request: Any, context: Any) -> AsyncIterator[int]:
        try:
            for number in range(100):
                yield number
        finally:
            closed.append(True)

    wanted = grpc.unary_stream_rpc_method_handler(follow)
    guarded = await handler(world, "/hyperscout.v1.TopologyService/WatchTopology", wanted)
    answers = guarded.unary_stream("x", Context(ANN))
    assert [await anext(answers) for _ in range(2)] == [0, 1]
    world.server.rights.clear()
    assert await anext(answers) == 2
    world.now_s += 60
    with pytest.raises(AbortedError) as end:
        await anext(answers)
    assert end.value.args[0] == grpc.StatusCode.PERMISSION_DENIED
    assert closed == [True]


async def test_a_certificate_that_has_expired_is_good_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection outlives it: a client that keeps calling must show a fresh one."""
    monkeypatch.setattr(access_module, "not_after_s", lambda _: 1000.0)
    now_s = [999.0]
    access = Access(now_s=lambda: now_s[0])
    found = Shown(("hyperscout://reader/ann",), b"PEM")
    assert (await access.admit(found, "get")).name == "ann"
    now_s[0] = 1000.0
    with pytest.raises(UnknownCallerError, match="certificate of reader ann has expired"):
        await access.admit(found, "get")

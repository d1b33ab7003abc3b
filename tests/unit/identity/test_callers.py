"""The identity of a caller, from what it showed: every form that is taken, and every one that is not."""

import base64
import math
from typing import Any

import grpc
import pytest
from hyperscout.v1.placement_pb2 import PlaceRequest, RepairRequest, ResizeRequest
from hyperscout_collector.identity.callers import (
    NODE_NAME,
    AnotherNameError,
    Caller,
    Claims,
    NotAllowedError,
    Shown,
    UnknownCallerError,
    User,
    agent_of,
    certificate_may,
    claims_of,
    may_report,
    of_certificate,
    reports_for,
    shown,
    spread_s,
    verb_for,
    why_unknown,
)
from hypothesis import given
from hypothesis import strategies as st
from support.identities import AGENT, AGENTS, jwt

# --- what is shown


@pytest.mark.parametrize(
    ("metadata", "token"),
    [
        ((), ""),
        ((("user-agent", "x"),), ""),
        ((("authorization", "Bearer abc.def-_~+/="),), "abc.def-_~+/="),
        ((("authorization", "bearer  abc "),), "abc"),
    ],
)
def test_a_token_is_taken_from_the_metadata(metadata: Any, token: str) -> None:
    assert shown({"transport_security_type": [b"ssl"]}, metadata) == Shown(token=token)


@pytest.mark.parametrize(
    "values",
    [
        ("Basic dXNlcg==",),
        ("Bearer",),
        ("Bearer ",),
        ("abc",),
        ("Bearer a b",),
        ("Bearer a\nb",),
        ("Bearer ä",),
        ("Bearer " + "x" * 17_000,),
        (b"Bearer abc",),
        ("Bearer a", "Bearer b"),
    ],
)
def test_what_is_no_token_is_refused_without_repeating_it(values: tuple[Any, ...]) -> None:
    with pytest.raises(UnknownCallerError) as refused:
        shown({}, [("authorization", value) for value in values])
    assert "authorization" in str(refused.value)
    assert "xxx" not in str(refused.value)


def test_a_certificate_goes_before_a_token() -> None:
    auth = {
        "x509_pem_cert": [b"PEM"],
        "peer_uri": [b"hyperscout://node/a", b"spiffe://x/y"],
        "peer_dns": [b"b"],
    }
    found = shown(auth, [("authorization", "Bearer abc")])
    assert found == Shown(("hyperscout://node/a", "spiffe://x/y"), b"PEM")


def test_tokens_are_in_no_repr() -> None:
    assert "secret" not in repr(Shown(token="secret")) + repr(Caller("user", "u", token="secret"))


# --- certificates


@pytest.mark.parametrize(
    ("uris", "caller"),
    [
        (["hyperscout://node/gpu-01.example.org"], Caller("node", "gpu-01.example.org")),
        (["hyperscout://node/east/gpu-01"], Caller("node", "east/gpu-01")),
        (["hyperscout://switch/leaf-03"], Caller("switch", "leaf-03")),
        (["hyperscout://fabric/crawl"], Caller("fabric", "crawl")),
        (["hyperscout://reader/grafana"], Caller("reader", "grafana")),
        (["hyperscout://admin/ann@example.org"], Caller("admin", "ann@example.org")),
        (["spiffe://cluster/ns/x", "hyperscout://node/a"], Caller("node", "a")),
    ],
)
def test_a_certificate_names_its_holder(uris: list[str], caller: Caller) -> None:
    assert of_certificate(uris) == caller


@pytest.mark.parametrize(
    "uris",
    [
        [],
        ["spiffe://cluster/ns/x"],
        ["hyperscout://operator/a"],
        ["hyperscout://node/"],
        ["hyperscout://node"],
        ["hyperscout://node/A/b"],
        ["hyperscout://node/a/b/c"],
        ["hyperscout://node/switch/leaf-03"],
        ["hyperscout://node/fabric/crawl"],
        ["hyperscout://switch/a/b"],
        ["hyperscout://admin/a/b"],
        ["hyperscout://node/a%2fb"],
        ["hyperscout://node/a?x"],
        ["hyperscout://node/a\n"],
        ["HYPERSCOUT://node/a"],
        ["hyperscout://node/a", "hyperscout://node/b"],
        ["hyperscout://node/a", "HyperScout:anything"],
        ["hyperscout://node/" + "a" * 254],
        ["xhyperscout://node/a"],
    ],
)
def test_any_other_certificate_is_refused(uris: list[str]) -> None:
    with pytest.raises(UnknownCallerError, match=r"hyperscout://node/NAME.*its URIs: "):
        of_certificate(uris)


@pytest.mark.parametrize(
    ("kind", "reports", "reads", "changes"),
    [
        ("node", True, False, False),
        ("switch", True, False, False),
        ("fabric", True, False, False),
        ("reader", False, True, False),
        ("admin", False, True, True),
    ],
)
def test_what_the_holder_of_a_certificate_may(kind: Any, reports: bool, reads: bool, changes: bool) -> None:
    def may(what: Any, *more: Any) -> bool:
        try:
            what(Caller(kind, "a"), *more)
        except NotAllowedError:
            return False
        return True

    assert (may(may_report), may(certificate_may, "get"), may(certificate_may, "update")) == (
        reports,
        reads,
        changes,
    )


# --- agents


def test_an_agent_is_the_node_of_its_token() -> None:
    assert agent_of(User(AGENT, extra={NODE_NAME: ["n1"]}), AGENTS) == Caller("node", "n1")


@pytest.mark.parametrize(
    ("user", "agents", "words"),
    [
        (
            User("ann"),
            AGENTS,
            "ann may not report findings: tokens of the service account hyperscout:agent m",
        ),
        (User("system:serviceaccount:other:agent", extra={NODE_NAME: ["n1"]}), AGENTS, "other:agent may not"),
        (User(AGENT + "x", extra={NODE_NAME: ["n1"]}), AGENTS, "agentx may not report"),
        (User(AGENT, extra={NODE_NAME: ["n1"]}), "", "no service account may"),
        (User("system:serviceaccount:", extra={NODE_NAME: ["n1"]}), "", "no service account may"),
        (User(AGENT), AGENTS, "is not bound to a node"),
        (User(AGENT, extra={NODE_NAME: []}), AGENTS, "is not bound to a node"),
    ],
)
def test_no_other_account_is_an_agent(user: User, agents: str, words: str) -> None:
    with pytest.raises(NotAllowedError, match=words):
        agent_of(user, agents)


FABRIC = "hyperscout:crawl"


def test_a_token_of_its_account_makes_an_agent_of_fabrics() -> None:
    """Its name is the account's: whatever node its pod is on."""
    user = User("system:serviceaccount:hyperscout:crawl", extra={NODE_NAME: ["n1"]})
    assert agent_of(user, AGENTS, FABRIC) == Caller("fabric", "crawl")
    assert agent_of(user, "", FABRIC) == Caller("fabric", "crawl")
    assert agent_of(User(AGENT, extra={NODE_NAME: ["n1"]}), AGENTS, FABRIC) == Caller("node", "n1")


@pytest.mark.parametrize("name", ["hyperscout:crawl2", "other:crawl", "hyperscout:", ""])
def test_no_other_account_is_a_crawler(name: str) -> None:
    with pytest.raises(NotAllowedError, match="of the service account hyperscout:agent and hyperscout:crawl"):
        agent_of(User(f"system:serviceaccount:{name}"), AGENTS, FABRIC)


def test_without_the_setting_no_token_makes_one() -> None:
    with pytest.raises(NotAllowedError):
        agent_of(User("system:serviceaccount:hyperscout:crawl"), AGENTS)
    with pytest.raises(NotAllowedError):
        agent_of(User("system:serviceaccount:"), AGENTS, "")


def test_an_agent_reports_for_its_own_node() -> None:
    reports_for(Caller("node", "n1"), "n1")
    reports_for(Caller("anonymous"), "n1")
    for other in ("n2", "N1", "n1 ", ""):
        with pytest.raises(NotAllowedError, match=rf"node 'n1', and Hello names node '{other}'"):
            reports_for(Caller("node", "n1"), other)


@pytest.mark.parametrize(
    ("caller", "name", "words"),
    [
        (Caller("switch", "leaf-1"), "leaf-1", "switch 'leaf-1', and Hello names node 'leaf-1'"),
        (Caller("switch", "leaf-1"), "switch/leaf-2", "switch 'leaf-1', and Hello names switch 'leaf-2'"),
        (Caller("node", "leaf-1"), "switch/leaf-1", "node 'leaf-1', and Hello names switch 'leaf-1'"),
        (Caller("switch", "leaf-1"), "switch/switch/leaf-1", "Hello names switch 'switch/leaf-1'"),
        (Caller("fabric", "leaf-1"), "switch/leaf-1", "fabric 'leaf-1', and Hello names switch 'leaf-1'"),
        (Caller("fabric", "leaf-1"), "leaf-1", "fabric 'leaf-1', and Hello names node 'leaf-1'"),
        (Caller("fabric", "leaf-1"), "fabric/leaf-2", "fabric 'leaf-1', and Hello names fabric 'leaf-2'"),
        (Caller("node", "leaf-1"), "fabric/leaf-1", "node 'leaf-1', and Hello names fabric 'leaf-1'"),
        (Caller("switch", "leaf-1"), "fabric/leaf-1", "switch 'leaf-1', and Hello names fabric 'leaf-1'"),
    ],
)
def test_a_switch_or_a_crawl_reports_for_itself_and_is_no_node(caller: Caller, name: str, words: str) -> None:
    reports_for(Caller("switch", "leaf-1"), "switch/leaf-1")
    reports_for(Caller("fabric", "crawl"), "fabric/crawl")
    reports_for(Caller("anonymous"), "switch/leaf-1")
    with pytest.raises(AnotherNameError, match=words) as error:
        reports_for(caller, name)
    assert error.value.refusal == "another_name"


# --- methods


@pytest.mark.parametrize(
    ("method", "verb"),
    [
        ("/grpc.health.v1.Health/Check", None),
        ("/hyperscout.v1.DiscoveryService/StreamFindings", None),
        ("/hyperscout.v1.TopologyService/GetTopology", "get"),
        ("/hyperscout.v1.TopologyService/WatchTopology", "get"),
        ("/hyperscout.v1.TopologyService/Explain", "get"),
        ("/hyperscout.v1.TopologyService/ListFindings", "get"),
        ("/hyperscout.v1.TopologyService/GetStatus", "get"),
        ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "get"),
        ("/hyperscout.v1.TopologyService/Approve", "update"),
        ("/hyperscout.v1.TopologyService/GetEventLog", "update"),
        ("/hyperscout.v1.TopologyService/Whatever", "update"),
        ("/hyperscout.v1.PlacementService/Place", "update"),
        ("/hyperscout.v1.PlacementService/Repair", "update"),
        ("/hyperscout.v1.PlacementService/Resize", "update"),
        ("/hyperscout.v1.PlacementService/Release", "update"),
        ("/hyperscout.v1.PlacementService/Whatever", "update"),
        ("/hyperscout.v1.PlacementService/ExplainPlacement", "get"),
        ("/hyperscout.v1.PlacementService/ListPlacements", "get"),
        ("/hyperscout.v1.PlacementService/WatchPlacements", "get"),
        ("/hyperscout.v1.PlacementService/Improve", "get"),
        ("/hyperscout.v1.PlacementService/Defragment", "get"),
        ("/hyperscout.v1.MeasurementService/GetMeasuring", "get"),
        ("/hyperscout.v1.MeasurementService/SetMeasuring", "update"),
        ("/hyperscout.v1.MeasurementService/RunNccl", "update"),
        ("/other/GetTopology", "update"),
        ("GetTopology", "update"),
    ],
)
def test_each_method_needs_its_verb_and_an_unlisted_one_update(method: str, verb: str | None) -> None:
    assert verb_for(method) == verb


@pytest.mark.parametrize("method", ["Place", "Repair", "Resize"])
def test_a_dry_run_changes_nothing(method: str) -> None:
    name = f"/hyperscout.v1.PlacementService/{method}"
    asked = {"Place": PlaceRequest, "Repair": RepairRequest, "Resize": ResizeRequest}[method]
    assert verb_for(name, asked(dry_run=True)) == "get"
    assert verb_for(name, asked()) == "update"
    for other in ("/hyperscout.v1.PlacementService/Release", "/other/Place"):
        assert verb_for(other, asked(dry_run=True)) == "update"


# --- what a token says of itself


@pytest.mark.parametrize(
    ("token", "claims"),
    [
        (jwt(aud=["a", "b"], exp=5), Claims(("a", "b"), 5.0)),
        (jwt(aud="a", exp=5.5), Claims(("a",), 5.5)),
        (jwt(), Claims()),
        (jwt(aud=[1], exp="5"), Claims()),
        (jwt(aud={}, exp=True), Claims()),
        (jwt(exp=math.inf), Claims()),
        (jwt(exp=math.nan), Claims()),
        (jwt(exp=10**400), Claims()),
        ("opaque", Claims()),
        ("a.b.c", Claims()),
        ("a.W10.c", Claims()),  # []
        (f"a.{base64.urlsafe_b64encode(b'[' * 9000).decode()}.c", Claims()),
    ],
)
def test_claims(token: str, claims: Claims) -> None:
    assert claims_of(token) == claims


@given(st.text() | st.text(alphabet="abcdefghijWXYZ019_-=").map(lambda body: f"a.{body}.c"))
def test_any_token_gives_claims_or_none(token: str) -> None:
    claims_of(token)


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        (Claims(("hyperscout",), 90.0), "expired 10 s ago"),
        (Claims(("api",), 200.0), "for the audience 'api', not 'hyperscout'"),
        (Claims((), None), "for the audience 'none'"),
        (Claims(("hyperscout",), 200.0), "does not know this token"),
        (Claims(), "does not know this token"),
    ],
)
def test_why_a_token_is_not_taken(claims: Claims, words: str) -> None:
    said = why_unknown(claims, "hyperscout", 100.0)
    assert words in said
    assert "kubectl create token SERVICEACCOUNT --audience hyperscout" in said


def test_agents_come_back_over_a_minute() -> None:
    waits = {spread_s(f"node-{i}") for i in range(1000)}
    assert min(waits) >= 0
    assert max(waits) < 60
    assert len(waits) > 50


def test_codes_say_what_to_do_next() -> None:
    assert UnknownCallerError.code == grpc.StatusCode.UNAUTHENTICATED
    assert NotAllowedError.code == grpc.StatusCode.PERMISSION_DENIED

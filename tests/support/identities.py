"""Certificates and tokens for tests: an authority's family, and an API server that knows some tokens."""

import asyncio
import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from hyperscout_collector.identity.access import Access
from hyperscout_collector.identity.callers import Caller, NotAllowedError, Verb
from hyperscout_collector.identity.reviews import ACCESS_REVIEWS, TOKEN_REVIEWS
from hyperscout_kubernetes.client import Fence
from hyperscout_runtime.credentials import Credentials
from kube.pki import LOOPBACK, Authority, Pair

from support.real import require_real

AUDIENCE = "hyperscout"
AGENTS = "hyperscout:agent"
AGENT = f"system:serviceaccount:{AGENTS}"
NODE_NAME = "authentication.kubernetes.io/node-name"


def jwt(**claims: Any) -> str:
    """A token with these claims, without a signature."""

    def part(what: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(what).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part(claims)}.c2ln"


@dataclass
class FakeReviews:
    """An API server that answers reviews. `users`: by token; `rights`: (user, verb).

    `trouble` is raised in place of an answer; `asked`: (path, spec) of each question.
    """

    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    rights: set[tuple[str, str]] = field(default_factory=set)
    audience: str = AUDIENCE
    trouble: Exception | None = None
    hangs: bool = False
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    fence: Fence = field(default_factory=Fence)

    async def review(self, path: str, body: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        spec = body["spec"]
        self.asked.append((path, spec))
        if self.trouble is not None:
            raise self.trouble
        if self.hangs:
            await asyncio.Event().wait()
        if path == ACCESS_REVIEWS:
            assert body["kind"] == "SubjectAccessReview"
            attributes = spec["resourceAttributes"]
            assert (attributes["group"], attributes["resource"]) == ("topology.volcano.sh", "hypernodes")
            return {"status": {"allowed": (spec["user"], attributes["verb"]) in self.rights}}
        assert path == TOKEN_REVIEWS
        assert body["kind"] == "TokenReview"
        user = self.users.get(spec["token"])
        if user is None or self.audience not in spec["audiences"]:
            return {"status": {"error": f"invalid bearer token {spec['token']}"}}
        return {"status": {"authenticated": True, "user": user, "audiences": [self.audience]}}

    def agent(self, node: str, **claims: Any) -> str:
        """A token of the agent on a node."""
        return self.user(AGENT, extra={NODE_NAME: [node]}, sub=node, **claims)

    def user(self, name: str, *, extra: dict[str, list[str]] | None = None, **claims: Any) -> str:
        """A token of any user."""
        token = jwt(**({"aud": [self.audience], "sub": name} | claims))
        self.users[token] = {"username": name, "extra": extra or {}}
        return token

    def count(self, path: str) -> int:
        return sum(asked == path for asked, _ in self.asked)


class Family:
    """An authority and what it signs, each made when first asked for."""

    def __init__(self, folder: Path) -> None:
        require_real("openssl")
        self.authority = Authority(folder)
        self.ca = self.authority.cert
        self._pairs: dict[tuple[str, str], Pair] = {}

    def pair(self, san: str, days: str = "3") -> Pair:
        """`san`: "URI:hyperscout://node/n1", "DNS:collector"."""
        if (san, days) not in self._pairs:
            name = f"pair-{len(self._pairs)}"
            self._pairs[san, days] = self.authority.issue(name, f"/CN={name}", san=san, days=days)
        return self._pairs[san, days]

    @property
    def server(self) -> Pair:
        return self.pair(LOOPBACK)

    def client(self, identity: str = "", days: str = "3", **more: Any) -> Credentials:
        """`identity`: "node/n1"; "" = TLS without a certificate of one's own."""
        if not identity:
            return Credentials(ca=self.ca, **more)
        pair = self.pair(f"URI:hyperscout://{identity}", days)
        return Credentials(ca=self.ca, cert=pair.cert, key=pair.key, **more)

    def channel(self, identity: str = "", days: str = "3") -> grpc.ChannelCredentials:
        found = self.client(identity, days).for_channel()
        assert found is not None
        return found


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    """The authority that the collector of a module's tests trusts."""
    return Family(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Family:
    """Another authority."""
    return Family(tmp_path_factory.mktemp("theirs"))


def show(token: str) -> tuple[tuple[str, str], ...]:
    """Metadata that shows a token."""
    return (("authorization", f"Bearer {token}"),)


class Reader(Access):
    """Admits each caller as a reader."""

    async def admit(self, context: Any, verb: Verb) -> Caller:
        if verb != "get":
            raise NotAllowedError("reader x may not do this")
        return Caller("reader", "x")

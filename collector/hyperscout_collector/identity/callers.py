"""Derives a caller's identity and permissions from its credentials. Pure: does not contact an API server.

There are two kinds of credentials. A client certificate identifies its holder by a URI in its subject
alternative names (RFC 5280, 4.2.1.6), for example `hyperscout://node/gpu-01`. A token (RFC 6750) proves
nothing by itself: an API server must review it to identify its owner.
"""

import base64
import json
import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import grpc
from hyperscout_formats.text.reporters import fabric_reporter, is_node, is_reporter, node_in, switch_reporter

Verb = Literal["get", "update"]
Kind = Literal["anonymous", "node", "switch", "fabric", "reader", "admin", "user"]

NODE_NAME = "authentication.kubernetes.io/node-name"  # user extra of a token that is bound to a pod or a node
_SERVICE_ACCOUNT = "system:serviceaccount:"

_URI = re.compile(
    r"hyperscout://(node|switch|fabric|reader|admin)/"
    r"((?:(?<=node/)[a-z0-9-]{1,63}/)?[A-Za-z0-9][A-Za-z0-9._@-]{0,252})"
)
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, 2.1: b64token
MAX_TOKEN_CHARS = 16 * 1024
_SPREAD_S = 60  # spreads the checks of agents that started together

_READS = frozenset({"GetTopology", "WatchTopology", "Explain", "ListFindings", "GetStatus", "ListHistory"})
_TOPOLOGY = "/hyperscout.v1.TopologyService/"
_GET_MEASURING = "/hyperscout.v1.MeasurementService/GetMeasuring"
_PLACEMENT = "/hyperscout.v1.PlacementService/"
_PLACEMENT_READS = frozenset(
    {"ExplainPlacement", "ListPlacements", "WatchPlacements", "ListQueue", "Improve", "Defragment"}
)
# Read-only if the request sets `dry_run`.
_DRY_RUNS = frozenset({_PLACEMENT + "Place", _PLACEMENT + "Repair", _PLACEMENT + "Resize"})


class AccessError(Exception):
    """The call is refused. The message contains the reason and the next step.

    `refusal`: the reason under which refused reports are counted; "" = not counted. `identity`: the
    authenticated caller, "" = none.
    """

    code = grpc.StatusCode.INTERNAL
    refusal = ""
    identity = ""


class UnknownCallerError(AccessError):
    """Unauthenticated. The caller must present other credentials."""

    code = grpc.StatusCode.UNAUTHENTICATED
    refusal = "unknown_caller"


class NotAllowedError(AccessError):
    """Authenticated, but not authorized. An operator must change a name or a role."""

    code = grpc.StatusCode.PERMISSION_DENIED
    refusal = "may_not_report"


class AnotherNameError(NotAllowedError):
    """A reporter uses a name that is not its own. `identity`: the authenticated caller."""

    refusal = "another_name"

    def __init__(self, reason: str, identity: str) -> None:
        super().__init__(reason)
        self.identity = identity


class AskLaterError(AccessError):
    """The check is not possible at the moment. The same call may succeed later."""

    code = grpc.StatusCode.UNAVAILABLE


class BusyError(AskLaterError):
    """Too many checks are in progress. The caller must retry more slowly."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


@dataclass(frozen=True, slots=True)
class Shown:
    """The credentials of a call: a verified certificate with its URIs, or a token."""

    uris: tuple[str, ...] = ()
    certificate: bytes = b""  # PEM; empty = the port does not ask for certificates or the caller sent none
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class User:
    """The owner of a token, as the API server reports it."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def node(self) -> str:
        """The node that the token is bound to; "" = the token is not bound to a node."""
        found = self.extra.get(NODE_NAME) or ("",)
        return found[0]


@dataclass(frozen=True, slots=True)
class Caller:
    """An identified caller. `until_s`: Unix time until which the check is valid; then it is repeated."""

    kind: Kind
    name: str = ""
    until_s: float = math.inf
    token: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


@dataclass(frozen=True, slots=True)
class Claims:
    """The unverified claims of a token. They may refuse or expire a token, but never grant access."""

    audiences: tuple[str, ...] | None = None
    expires_s: float | None = None


def shown(auth: Mapping[str, Iterable[bytes]], metadata: Iterable[tuple[str, str | bytes]]) -> Shown:
    """Reads the credentials from gRPC's auth context and a call's metadata.

    Raises UnknownCallerError if the `authorization` metadata is malformed or repeated.
    """
    if certificate := b"".join(auth.get("x509_pem_cert", ())):
        uris = tuple(uri.decode("utf-8", "replace") for uri in auth.get("peer_uri", ()))
        return Shown(uris, certificate)
    values = [value for key, value in metadata if key == "authorization"]
    if not values:
        return Shown()
    if len(values) > 1:
        raise UnknownCallerError("found more than one `authorization`: send one")
    scheme, _, token = (values[0] if isinstance(values[0], str) else "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or len(token) > MAX_TOKEN_CHARS or not _TOKEN.fullmatch(token):
        raise UnknownCallerError("`authorization` is not of the form `Bearer TOKEN`")
    return Shown(token=token)


def of_certificate(uris: Sequence[str]) -> Caller:
    """Returns the one identity among a certificate's URIs. Raises UnknownCallerError."""
    matching = [uri for uri in uris if uri.lower().startswith("hyperscout:")]
    match = _URI.fullmatch(matching[0]) if len(matching) == 1 else None
    # The name of a node with the prefix "switch/" would be that of a switch.
    if match is None or not (is_reporter(match[2]) and is_node(match[2])):
        found = ", ".join(uris)[:200] or "none"
        raise UnknownCallerError(
            "the client certificate must have one URI hyperscout://node/NAME (of another cluster: "
            "hyperscout://node/CLUSTER/NAME), hyperscout://switch/NAME, hyperscout://fabric/NAME, "
            "hyperscout://reader/NAME or hyperscout://admin/NAME among its subject "
            f"alternative names; its URIs: {found}"
        )
    kind: Any = match[1]
    return Caller(kind, match[2])


def agent_of(user: User, service_account: str, fabric_service_account: str = "", cluster: str = "") -> Caller:
    """Returns the agent that this user is: the agent of a node, or the agent that reports whole fabrics.

    Both service accounts have the form "namespace:name"; "" = no user may report in that role. `cluster`: of
    the API server that knows the user; "" = the collector's own. Raises NotAllowedError.
    """
    if fabric_service_account and user.name == _SERVICE_ACCOUNT + fabric_service_account:
        return Caller("fabric", fabric_service_account.partition(":")[2])
    if not service_account or user.name != _SERVICE_ACCOUNT + service_account:
        accounts = " and ".join(filter(None, (service_account, fabric_service_account)))
        allowed = f"tokens of the service account {accounts}" if accounts else "no service account"
        raise NotAllowedError(
            f"{user.name} may not report findings: {allowed} may "
            "(settings agent_service_account, fabric_service_account)"
        )
    if not user.node:
        raise NotAllowedError(
            f"the token of {user.name} is not bound to a node: use a projected token of the agent's own pod "
            "(Kubernetes 1.30 or newer)"
        )
    return Caller("node", node_in(cluster, user.node))


def may_report(caller: Caller) -> None:
    """Raises NotAllowedError if the caller is not an agent."""
    if caller.kind not in ("anonymous", "node", "switch", "fabric"):
        raise NotAllowedError(
            f"{caller} may not report findings: use a certificate with a URI hyperscout://node/, "
            "hyperscout://switch/ or hyperscout://fabric/"
        )


def reports_for(caller: Caller, node: str) -> None:
    """Checks that an agent reports under its own name only.

    A node's agent reports for its node, a switch's agent for its switch, and an agent of role fabric under
    its own name. Raises AnotherNameError.
    """
    if caller.kind == "anonymous":
        return
    match caller.kind:
        case "switch":
            own = switch_reporter(caller.name)
        case "fabric":
            own = fabric_reporter(caller.name)
        case _:
            own = caller.name
    if own != node:
        role, name = ("node", node) if is_node(node) else node.split("/", 1)
        raise AnotherNameError(
            f"these are the credentials of {caller.kind} {caller.name!r}, and Hello names {role} {name!r}: "
            "an agent reports for itself only (its settings `node`, `cluster` and `role`)",
            str(caller),
        )


def certificate_may(caller: Caller, verb: Verb) -> None:
    """Checks that the holder of a certificate may use a verb. Raises NotAllowedError."""
    if caller.kind == "admin" or (caller.kind == "reader" and verb == "get"):
        return
    wanted = "hyperscout://admin/" if verb == "update" else "hyperscout://reader/ or hyperscout://admin/"
    raise NotAllowedError(f"{caller} may not do this: use a certificate with a URI {wanted}")


def verb_for(method: str, request: object = None) -> Verb | None:
    """Returns the verb that a method requires, or None where the method is not authorized here.

    Methods that are not known to be read-only require "update". `request`: the request message, if known: a
    dry run requires only "get".
    """
    if method.startswith(("/grpc.health.v1.Health/", "/hyperscout.v1.DiscoveryService/")):
        return None  # health needs no authorization; a findings stream is authorized with its Hello
    if method.startswith("/grpc.reflection.") or method == _GET_MEASURING:
        return "get"
    if method in _DRY_RUNS and getattr(request, "dry_run", False) is True:
        return "get"
    if method.startswith(_PLACEMENT):
        return "get" if method.removeprefix(_PLACEMENT) in _PLACEMENT_READS else "update"
    name = method.removeprefix(_TOPOLOGY)
    return "get" if name != method and name in _READS else "update"


def claims_of(token: str) -> Claims:
    """Returns the unverified claims of a token. Returns empty Claims if it is not a JWT (RFC 7519)."""
    parts = token.split(".")
    if len(parts) != 3:
        return Claims()
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return Claims()
    if not isinstance(found, dict):
        return Claims()
    audiences, expires_s = found.get("aud"), found.get("exp")
    if isinstance(audiences, str):
        audiences = [audiences]
    if not isinstance(audiences, list) or not all(isinstance(one, str) for one in audiences):
        audiences = None
    # A JSON integer can be larger than any float.
    if not isinstance(expires_s, int | float) or isinstance(expires_s, bool) or not abs(expires_s) < 2**62:
        expires_s = None
    return Claims(
        None if audiences is None else tuple(audiences), None if expires_s is None else float(expires_s)
    )


def why_unknown(claims: Claims, audience: str, now_s: float) -> str:
    """Returns the likely reason why an API server rejected a token, with the next step."""
    get_one = f"get one with `kubectl create token SERVICEACCOUNT --audience {audience}`"
    if claims.expires_s is not None and claims.expires_s <= now_s:
        return f"the token expired {now_s - claims.expires_s:.0f} s ago: {get_one}"
    if claims.audiences is not None and audience not in claims.audiences:
        found = ", ".join(claims.audiences)[:200] or "none"
        return f"the token is for the audience {found!r}, not {audience!r}: {get_one}"
    return f"the API server does not know this token (its pod or service account may be gone): {get_one}"


def spread_s(name: str) -> int:
    """Returns 0 to 59 seconds, always the same number for the same name."""
    return zlib.crc32(name.encode()) % _SPREAD_S

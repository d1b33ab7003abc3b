"""Connects to a collector step by step as the agent does, to find the step that fails.

The last step is a real Hello with this node's name and an instance number lower than any agent's. If the
agent's own stream is open, the collector keeps that stream and rejects the Hello. If not, the collector
accepts the Hello, which announces no probes, and the doctor then closes its stream. The agent's stream
is not disturbed in either case.
"""

import asyncio
import base64
import binascii
import contextlib
import json
import os
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import grpc.aio
from hyperscout.v1.discovery_pb2 import Hello, StreamFindingsRequest, StreamFindingsResponse
from hyperscout.v1.discovery_pb2_grpc import DiscoveryServiceStub
from hyperscout_formats.text.collector_time import time_in
from hyperscout_formats.text.leader import leader_in
from hyperscout_runtime.credentials import Credentials, CredentialsError, TargetError, tls_hint
from hyperscout_runtime.units import NS

from hyperscout_agent.doctor.facts import CollectorSeen, Stage, TokenSeen
from hyperscout_agent.settings.settings import AgentSettings
from hyperscout_agent.uplink.uplink import channel_options

_CONNECT_TIMEOUT_S = 5.0
_HELLO_TIMEOUT_S = 20.0  # a standby that knows no leader keeps an agent waiting for 15 s
# If the collector ends the call while the Hello is being written, gRPC may replace its status by INTERNAL
# (https://github.com/grpc/grpc/issues/36066).
_TRIES = 3
_OLDEST_INSTANCE = 1  # an agent's instance is its start time in ns
_MAX_HINTS = 3
_MAX_TOKEN_BYTES = 16 * 1024
_LOCAL = ("unix:", "unix-abstract:")


@dataclass(frozen=True, slots=True)
class _Way:
    """Credentials and reporter name for a collector. `wall_ns`: this host's clock, Unix time in ns."""

    credentials: Credentials
    reporter: str
    wall_ns: Callable[[], int]


async def ask_collectors(
    settings: AgentSettings, *, wall_ns: Callable[[], int] = time.time_ns
) -> tuple[CollectorSeen, ...]:
    """Try all collectors concurrently and follow a standby's hint to its leader. Does not raise."""
    way = _Way(settings.credentials, settings.reporter, wall_ns)
    return tuple(await asyncio.gather(*(_ask(target, way) for target in settings.collectors)))


async def _ask(target: str, way: _Way) -> CollectorSeen:
    found, leader = await _try(target, way)
    for _ in range(_MAX_HINTS):
        if not leader:
            break
        found, leader = await _try(leader, way)
    return found if found.target == target else replace(found, target=f"{target}, led by {found.target}")


async def _try(target: str, way: _Way) -> tuple[CollectorSeen, str | None]:
    """Try one address. Returns the result, and the leader's address if the collector reports one."""
    until_s = None
    try:
        way.credentials.check(target)
        metadata = way.credentials.metadata()
        context = _context(way.credentials)
    except (TargetError, CredentialsError) as error:
        return CollectorSeen(target, "settings", str(error)), None
    if not target.startswith(_LOCAL):
        host, _, port = target.rpartition(":")
        name = way.credentials.server_name or host.strip("[]")
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                until_s = await _connect(host.strip("[]"), int(port), context, name)
        except socket.gaierror as error:
            return CollectorSeen(target, "name", error.strerror or str(error)), None
        except ssl.SSLError as error:
            return CollectorSeen(target, "tls", _tls_words(error)), None
        except TimeoutError:
            return CollectorSeen(target, "connect", f"no answer in {_CONNECT_TIMEOUT_S:g} s"), None
        except OSError as error:
            return CollectorSeen(
                target, "connect", os.strerror(error.errno) if error.errno else str(error)
            ), None
    found, leader = await _hello(target, way, metadata)
    return replace(found, certificate_until_s=until_s), leader


def _context(credentials: Credentials) -> ssl.SSLContext | None:
    """Return a TLS context like gRPC's, or None without TLS. Raises CredentialsError."""
    if credentials.for_channel() is None or credentials.ca is None:
        return None
    context = ssl.create_default_context(cafile=str(credentials.ca))
    context.set_alpn_protocols(["h2"])
    if credentials.cert is not None and credentials.key is not None:
        context.load_cert_chain(credentials.cert, credentials.key, password="")
    return context


async def _connect(host: str, port: int, context: ssl.SSLContext | None, name: str) -> float | None:
    """Connect, complete the TLS handshake and close the connection.

    Returns the expiry of the collector's certificate in Unix time, None without TLS. Raises OSError.
    """
    _, writer = await asyncio.open_connection(
        host, port, ssl=context, server_hostname=name if context else None
    )
    try:
        shown = writer.get_extra_info("peercert") if context else None
        return ssl.cert_time_to_seconds(shown["notAfter"]) if shown else None
    finally:
        writer.close()


def _tls_words(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    return tls_hint(str(error)) or f"the handshake failed: {error.reason or error}"


async def _hello(
    target: str, way: _Way, metadata: tuple[tuple[str, str], ...]
) -> tuple[CollectorSeen, str | None]:
    channel = way.credentials.connect(target, channel_options(_HELLO_TIMEOUT_S))
    try:
        async with asyncio.timeout(_HELLO_TIMEOUT_S):
            for _ in range(_TRIES - 1):
                found = await _greet(target, way, channel, metadata)
                if found[0].code != grpc.StatusCode.INTERNAL.name:
                    return found
            return await _greet(target, way, channel, metadata)
    except TimeoutError:
        return CollectorSeen(target, "identity", f"no answer to Hello in {_HELLO_TIMEOUT_S:g} s"), None
    finally:
        await channel.close()


async def _greet(
    target: str, way: _Way, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]
) -> tuple[CollectorSeen, str | None]:
    await _ready(channel)
    hello = Hello(node=way.reporter, version="doctor", instance=_OLDEST_INSTANCE)
    began_ns = way.wall_ns()
    call = DiscoveryServiceStub(channel).StreamFindings(metadata=metadata)
    with contextlib.suppress(
        grpc.aio.AioRpcError, asyncio.InvalidStateError
    ):  # the call has ended; its status contains the reason
        await call.write(StreamFindingsRequest(hello=hello))
    collector_ns = time_in(tuple(await call.initial_metadata()))
    ended_ns = way.wall_ns()
    seen = CollectorSeen(target, "identity")
    if collector_ns is not None:
        middle_ns = (began_ns + ended_ns) // 2
        seen = replace(
            seen, clock_offset_s=(middle_ns - collector_ns) / NS, uncertain_s=(ended_ns - began_ns) / NS / 2
        )
    first = None
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        first = await call.read()
    if isinstance(first, StreamFindingsResponse) and first.HasField("welcome"):
        call.cancel()
        return replace(seen, stage="greeted", version=first.welcome.version), None
    code, details = await call.code(), await call.details() or ""
    leader = leader_in(await call.trailing_metadata())
    if code is grpc.StatusCode.ABORTED:
        return replace(seen, stage="greeted", detail=details, code=code.name), None
    stage: Stage = "standby" if leader is not None else "identity"
    return replace(seen, stage=stage, detail=details, code=code.name), leader


async def _ready(channel: grpc.aio.Channel) -> None:
    """Connect the channel first, so that the timed part is one round trip.

    If the channel fails, the next call reports the reason.
    """
    state = channel.get_state(try_to_connect=True)
    while state in (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.CONNECTING):
        await channel.wait_for_state_change(state)
        state = channel.get_state()


def read_token(path: Path | None) -> TokenSeen | None:
    """Read the token file (RFC 7519) without validating the token. None when no token file is set."""
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_TOKEN_BYTES + 1).decode("ascii").strip()
    except OSError as error:
        return TokenSeen(str(path), error.strerror or str(error))
    except UnicodeDecodeError:
        return TokenSeen(str(path), "not a token")
    if not text or len(text) > _MAX_TOKEN_BYTES:
        return TokenSeen(str(path), "empty" if not text else "too long for a token")
    try:
        body = text.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        expires = claims.get("exp")
    except (IndexError, AttributeError, ValueError, binascii.Error):
        return TokenSeen(str(path))  # an opaque token: only its issuer can read it
    return TokenSeen(str(path), expires_s=float(expires) if isinstance(expires, int | float) else None)

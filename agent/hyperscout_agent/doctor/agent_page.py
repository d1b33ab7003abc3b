"""Reads the page /findings of the agent that runs on this host."""

import asyncio
import json
import os
from typing import Any

from hyperscout_agent.doctor.facts import AgentSeen, ProbeSeen, WithoutData

_TIMEOUT_S = 3.0
_MAX_BYTES = 4 * 1024 * 1024
_OLDER = "its version has no page /findings: upgrade it"


async def ask_agent(host: str, port: int) -> AgentSeen:
    """Return what the agent reports. Errors are returned in `trouble`, not raised."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            head, body = await _get(host, port)
    except TimeoutError:
        return AgentSeen(address, f"it accepted the connection and did not answer in {_TIMEOUT_S:g} s")
    except OSError as error:
        return AgentSeen(
            address, f"no program listens ({os.strerror(error.errno) if error.errno else error})"
        )
    if b" 200 " not in head.split(b"\r\n", 1)[0]:
        return AgentSeen(address, _OLDER)
    try:
        return read_page(address, json.loads(body))
    except (ValueError, KeyError, TypeError, AttributeError):
        return AgentSeen(address, "another program than the agent answers")


async def _get(host: str, port: int) -> tuple[bytes, bytes]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(b"GET /findings HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await writer.drain()
        answer = b""
        while len(answer) <= _MAX_BYTES and (piece := await reader.read(64 * 1024)):
            answer += piece
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


def read_page(address: str, page: Any) -> AgentSeen:
    """Convert the decoded page to facts.

    Raises KeyError, TypeError, AttributeError or ValueError when the page is not an agent's.
    """
    return AgentSeen(
        address,
        reporter=str(page["reporter"]),
        connected=bool(page["connected"]),
        probes={
            str(name): ProbeSeen(
                entry["success"],
                *(int(entry.get(outcome, 0)) for outcome in ("data", "nothing", "failed")),
            )
            for name, entry in page["probes"].items()
        },
        without_data=tuple(
            WithoutData(*(str(one[key]) for key in ("probe", "subject", "outcome", "reason")))
            for one in page["withoutData"]
        ),
    )

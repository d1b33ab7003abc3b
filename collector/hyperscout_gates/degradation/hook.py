"""The checkpoint hook: one POST to each pod of a gang before pods of it are deleted.

The annotation `hyperscout.io/checkpoint-hook: PORT/PATH` names what to call on the pod's own address, and
"none" states that the gang needs no call. Nothing else can be called: no host, no scheme and no command can
be named, redirects are not followed, and pods in the network of their node are refused, because their address
is that of the node.
"""

import asyncio
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aiohttp
from hyperscout_kubernetes.client import Object
from hyperscout_runtime.errors import described

HOOK = "hyperscout.io/checkpoint-hook"
NO_CALL = "none"

_VALUE = re.compile(r"([1-9][0-9]{0,4})/([A-Za-z0-9._~/-]{0,200})", re.ASCII)
_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Hook:
    """`url`: what to call; "" = nothing. `problem`: why the annotation cannot be followed."""

    url: str = ""
    problem: str = ""


def hook_of(pod: Object) -> Hook | None:
    """Return the hook of a pod; None if it has no annotation for it."""
    value = (pod["metadata"].get("annotations") or {}).get(HOOK)
    if value is None:
        return None
    if value == NO_CALL:
        return Hook()
    found = _VALUE.fullmatch(value) if isinstance(value, str) else None
    if found is None or int(found[1]) > 65535:
        return Hook(problem=f'{HOOK}: {str(value)[:80]!r}: expected PORT/PATH, or "{NO_CALL}"')
    if (pod.get("spec") or {}).get("hostNetwork"):
        return Hook(problem=f"{HOOK}: the pod is in the network of its node (hostNetwork)")
    text = (pod.get("status") or {}).get("podIP")
    try:
        address = ipaddress.ip_address(str(text))
    except ValueError:
        return Hook(problem=f"{HOOK}: the pod has no address yet")
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        return Hook(problem=f"{HOOK}: {address} is not an address of a pod")
    host = f"[{address}]" if address.version == 6 else str(address)
    return Hook(f"http://{host}:{int(found[1])}/{found[2]}")


async def call(urls: Mapping[str, str], body: Object, timeout_s: float) -> Sequence[str]:
    """POST `body` to each URL at the same time, and wait at most `timeout_s` seconds.

    `urls`: by name of the pod. Returns what went wrong, in the order of the names. A status from 200 to 299
    is success. The content of answers is not read.
    """
    turns = asyncio.Semaphore(_AT_ONCE)

    async def post(session: aiohttp.ClientSession, name: str) -> str:
        try:
            async with (
                asyncio.timeout(timeout_s),
                turns,
                session.post(urls[name], json=body, allow_redirects=False) as answer,
            ):
                return "" if 200 <= answer.status < 300 else f"{name} answers {answer.status}"
        except TimeoutError:
            return f"{name} does not answer within {timeout_s:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return f"{name}: {described(error)}"

    within = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        timeout=within, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
    ) as session:
        problems = await asyncio.gather(*(post(session, name) for name in sorted(urls)))
    return [problem for problem in problems if problem]

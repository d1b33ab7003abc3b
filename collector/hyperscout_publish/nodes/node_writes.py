"""Writes to many objects, such as nodes: in parallel, rate-limited by the client, with handling of failures.

An object that no longer exists needs no write. A write that the server refuses does not block others. If the
server does not respond, or writes are forbidden, all remaining writes are skipped.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Literal

from hyperscout_kubernetes.client import MANAGER, MERGE, Kube, Object
from hyperscout_kubernetes.errors import ConflictError, KubeError, NotFoundError, RejectedError
from hyperscout_kubernetes.nodes import Nodes
from hyperscout_kubernetes.reflector import Reflector

from hyperscout_publish.publisher.base import PublishError

Mode = Literal["off", "dry-run", "on"]

_AT_ONCE = 8
_FIRST_LIST_S = 10.0
_SHOWN = 20  # number of changes that a dry run prints


async def nodes_known(nodes: Nodes, within_s: float | None = None) -> None:
    """Wait until the nodes have been listed. Raises PublishError."""
    await listed(nodes.reflector, "the cluster's nodes", within_s)


async def listed(watch: Reflector, what: str, within_s: float | None = None, *, remedy: str = "") -> None:
    """Wait until the objects have been listed; before that, every one would seem to be missing.

    `what`: "the cluster's nodes". `remedy`: what to do where the server has no such resource. Raises
    PublishError.
    """
    try:
        async with asyncio.timeout(_FIRST_LIST_S if within_s is None else within_s):
            await watch.synced.wait()
    except TimeoutError as error:
        hint = f": {remedy}" if remedy and watch.is_unknown else ""
        raise PublishError(f"{what} are not known: {watch.problem or 'no response yet'}{hint}") from error


async def write_patch(kube: Kube, watch: Reflector, path: str, body: Object, content: str = MERGE) -> Object:
    """Patch an object, and show the answer in `watch` at once. Return it. Raises KubeError."""
    answer = await kube.write("PATCH", path, body, content=content, query={"fieldManager": MANAGER})
    watch.learn(answer)
    return answer


async def for_each(what: str, names: Sequence[str], write: Callable[[str], Awaitable[object]]) -> None:
    """Call `write(name)` for each name. `what`: "nodes". Raises PublishError if any write fails."""
    waiting: Iterator[str] = iter(names)
    refused: list[KubeError] = []
    fatal: list[KubeError] = []

    async def work() -> None:
        for name in waiting:
            if fatal:
                return
            try:
                await write(name)
            except NotFoundError:
                continue
            except (RejectedError, ConflictError) as error:
                refused.append(error)
            except KubeError as error:
                fatal.append(error)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(_AT_ONCE, len(names))):
            group.create_task(work())
    if fatal:
        raise PublishError(str(fatal[0])) from fatal[0]
    if refused:
        raise PublishError(f"{len(refused)} of {len(names)} {what}: {refused[0]}") from refused[0]


async def all_of(*steps: Callable[[], Awaitable[None]]) -> None:
    """Run one step after the other, also after a failure. Raises PublishError with all failures."""
    failures: list[PublishError] = []
    for step in steps:
        try:
            await step()
        except PublishError as error:
            failures.append(error)
    if failures:
        raise PublishError("; ".join(map(str, failures)), retry=any(x.retry for x in failures))


class DryRun:
    """Prints the changes of a dry run, once for each different list and bounded in length, with `say`."""

    def __init__(self, what: str, say: Callable[[str], None]) -> None:
        self._what = what
        self._say = say
        self._said: tuple[str, ...] = ()

    def show(self, lines: Iterable[str]) -> None:
        found = tuple(lines)
        if found == self._said:
            return
        self._said = found
        more = [f"... and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
        shown = [f"would change {self._what}: {len(found)}", *found[:_SHOWN], *more]
        self._say("".join(f"{line}\n" for line in shown))

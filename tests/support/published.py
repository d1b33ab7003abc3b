"""HyperNodes as a real `kubectl get hypernodes --watch` sees them, and what tests ask of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from support.kubernetes import Cluster
from support.waiting import TIMEOUT_S

Object = Mapping[str, Any]


class Published:
    """`now`: HyperNodes by name, as the watch has told so far."""

    def __init__(self) -> None:
        self.now: dict[str, Object] = {}
        self._changed = asyncio.Condition()

    async def follow(self, lines: asyncio.StreamReader) -> None:
        """Take in `kubectl get hn -w -o json --output-watch-events`, until it ends."""
        text = ""
        while line := await lines.readline():
            text += line.decode()
            try:
                event = json.loads(text)
            except ValueError:
                continue  # an event has many lines
            text = ""
            async with self._changed:
                found = event["object"]
                if event["type"] == "DELETED":
                    self.now.pop(found["metadata"]["name"], None)
                else:
                    self.now[found["metadata"]["name"]] = found
                self._changed.notify_all()

    async def until(self, holds: Callable[[dict[str, Object]], Any], what: str) -> Any:
        """Return the first true result of `holds`."""
        try:
            async with asyncio.timeout(TIMEOUT_S), self._changed:
                return await self._changed.wait_for(lambda: holds(self.now))
        except TimeoutError:
            seen = {name: {c["type"]: c["message"] for c in conditions_of(h)} for name, h in self.now.items()}
            raise AssertionError(f"never seen: {what}; there is {json.dumps(seen, indent=1)}") from None


@asynccontextmanager
async def published(kube: Cluster) -> AsyncIterator[Published]:
    """Follow the HyperNodes of a cluster with the real kubectl."""
    found = Published()
    words = ("get", "hypernodes", "--watch", "-o", "json", "--output-watch-events")
    async with kube.watching(*words) as lines:
        task = asyncio.create_task(found.follow(lines))
        try:
            yield found
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def conditions_of(hypernode: Object) -> list[dict[str, str]]:
    return (hypernode.get("status") or {}).get("conditions") or []


def condition(hypernode: Object, kind: str) -> tuple[str, str]:
    """(status, message); ("", "") where there is none."""
    return next(
        ((c["status"], c["message"]) for c in conditions_of(hypernode) if c["type"] == kind), ("", "")
    )


def leaf_of(hypernodes: Mapping[str, Object], node: str) -> Object:
    """The tier-1 HyperNode that names a node; empty where there is none."""
    member = {"type": "Node", "selector": {"exactMatch": {"name": node}}}
    return next((h for h in hypernodes.values() if member in h["spec"].get("members", ())), {})


def status_at(hypernodes: Mapping[str, Object], node: str, kind: str) -> tuple[str, str]:
    """A condition of the tier-1 HyperNode that names a node."""
    return condition(leaf_of(hypernodes, node), kind)

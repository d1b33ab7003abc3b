"""What `kubectl get hypernodes` shows, followed without a gap: a watch that a story asks questions of.

Nothing of hyperscout's own code takes part: it is kubectl's output, read as it grows.
"""

import codecs
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

Object = dict[str, Any]
_LOOK_S = 0.02


class Background(Protocol):
    """A program that runs on."""

    @property
    def alive(self) -> bool: ...

    def kill(self) -> None: ...


class StoryError(AssertionError):
    """Something did not happen in time, or something happened that must not; says what is there instead."""


def condition(hypernode: Object, kind: str) -> Object:
    """One condition; empty where there is none."""
    for one in hypernode.get("status", {}).get("conditions", ()):
        if one["type"] == kind:
            return dict(one)
    return {}


def members(hypernode: Object) -> frozenset[str]:
    """Names of the members, nodes or HyperNodes."""
    return frozenset(m["selector"]["exactMatch"]["name"] for m in hypernode["spec"].get("members", ()))


def essence(hypernode: Object) -> Object:
    """What a scheduler or a person acts on: its tier, its members, its conditions.

    Degraded by slow paths alone counts as not degraded. No step makes a path slow, but all nodes share a few
    cores: a path that was measured while these were busy counts as slow until it is measured again.
    """
    statuses = {
        c["type"]: "False" if (c["type"], c["reason"]) == ("Degraded", "SlowLinks") else c["status"]
        for c in hypernode.get("status", {}).get("conditions", ())
    }
    return {
        "tier": hypernode["spec"]["tier"],
        "members": sorted(members(hypernode)),
        "conditions": dict(sorted(statuses.items())),
    }


class Watch:
    """`start`: starts `kubectl get hypernodes --watch ...` with its output in the file."""

    def __init__(self, output: Path, start: Callable[[Path], Background]) -> None:
        self._output = output
        self._text = ""
        self._read_to = 0
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._decoder = json.JSONDecoder()
        self.now: dict[str, Object] = {}
        self.changes = 0  # events so far
        self._history: list[tuple[str, str, Object]] = []  # (what happened, name, object)
        self._process = start(output)

    def close(self) -> None:
        self._process.kill()

    def check(self) -> None:
        """Raises StoryError if it has ended, so that nothing new would be seen."""
        if not self._process.alive:
            raise StoryError("kubectl get hypernodes --watch has ended")

    def look(self) -> Mapping[str, Object]:
        """All HyperNodes by name, as kubectl has shown them by now."""
        for event in self._events():
            name = event["object"]["metadata"]["name"]
            if event["type"] == "DELETED":
                self.now.pop(name, None)
            else:
                self.now[name] = event["object"]
            self._history.append((event["type"], name, event["object"]))
            self.changes += 1
        return self.now

    def _events(self) -> Iterator[Object]:
        with self._output.open("rb") as file:
            file.seek(self._read_to)
            self._text += self._utf8.decode(file.read())
            self._read_to = file.tell()
        while text := self._text.lstrip():
            try:
                event, end = self._decoder.raw_decode(text)
            except json.JSONDecodeError:
                return  # the rest is still on its way
            self._text = text[end:]
            yield event

    def until(
        self, happened: Callable[[Mapping[str, Object]], Any], what: str, timeout_s: float = 180.0
    ) -> tuple[Any, float]:
        """What `happened` says once it is true, and after how many seconds. Raises StoryError."""
        began_s = time.monotonic()
        while not (found := happened(self.look())):
            if time.monotonic() - began_s > timeout_s:
                raise StoryError(f"not within {timeout_s:g} s: {what}\n{self.picture()}")
            self.check()
            time.sleep(_LOOK_S)
        return found, time.monotonic() - began_s

    def steady(self, for_s: float, timeout_s: float = 180.0) -> None:
        """Until nothing was written for so long."""
        began_s = quiet_s = time.monotonic()
        seen = self.changes
        while time.monotonic() - quiet_s < for_s:
            self.look()
            if self.changes != seen:
                seen, quiet_s = self.changes, time.monotonic()
            if time.monotonic() - began_s > timeout_s:
                raise StoryError(f"not steady within {timeout_s:g} s\n{self.picture()}")
            time.sleep(_LOOK_S)

    def flaps(self, since: int) -> list[str]:
        """What changed after that many events, event by event: a change that was taken back counts too."""
        self.look()
        before: dict[str, Object] = {}
        for kind, name, one in self._history[:since]:
            before.pop(name, None)
            if kind != "DELETED":
                before[name] = essence(one)
        found = []
        for kind, name, one in self._history[since:]:
            after = None if kind == "DELETED" else essence(one)
            if after != before.get(name):
                found.append(f"{kind} {name}: {before.get(name)} -> {after}")
            if after is None:
                before.pop(name, None)
            else:
                before[name] = after
        return found

    def picture(self) -> str:
        """All of it in a few lines, for the reader of a failure."""
        lines = []
        for name, one in sorted(self.look().items(), key=lambda x: (x[1]["spec"]["tier"], x[0])):
            lines.append(f"{name} tier {one['spec']['tier']}: {', '.join(sorted(members(one)))}")
            conditions = one.get("status", {}).get("conditions", ())
            lines += [f"    {c['type']}={c['status']} {c['reason']}: {c['message']}" for c in conditions]
        return "\n".join(lines) or "no HyperNodes"

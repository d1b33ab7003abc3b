"""Every write to HyperNodes, in order, none missed: read from etcd's history, replayed against `rules`.

    async with recording(kube.plane) as recorder:
        ...
        assert not recorder.problems

A watch on the API server would lose what happens around its restart (its cache begins anew); etcd keeps each
revision, since the control plane here never compacts it. Nothing of the collector's own code takes part.
"""

import asyncio
import base64
import json
import os
import socket
import threading
import urllib.request
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from kube.control_plane import ControlPlane
from kube.rules import Event, Object, Problem, Replay

_PREFIX = "/registry/topology.volcano.sh/hypernodes"
# Sorts before all HyperNodes and outside of what the API server reads: tells how far the stream has come.
_MARK = f"{_PREFIX}!mark"
_END = f"{_PREFIX}0"
_TIMEOUT_S = 240.0


class Recorder:
    """See above. `events` are all writes so far; to look at anything catches up with etcd first."""

    def __init__(self, etcd: str) -> None:
        self._etcd = etcd
        self._replay = Replay()
        self._events: list[Event] = []
        self._by_hand: set[str] = set()
        self._marks = 0
        self._seen = 0
        self._changed = threading.Condition()
        self._failed: Exception | None = None
        span = {"key": _b64(f"{_PREFIX}/"), "range_end": _b64(_END)}
        with self._post("/v3/kv/range", span) as answer:
            there = json.load(answer)
        for kv in there.get("kvs", ()):
            self._replay.start_with(json.loads(base64.b64decode(kv["value"])))
        span |= {"key": _b64(_PREFIX), "start_revision": str(int(there["header"]["revision"]) + 1)}
        self._stream = self._post("/v3/watch", {"create_request": span | {"prev_kv": True}}, timeout_s=None)
        self._reader = threading.Thread(target=self._read, name="recorder", daemon=True)

    def by_hand(self, *names: str) -> None:
        """The next deletions of these are the test's own doing (a deletion does not say whose it is)."""
        self._by_hand.update(names)

    @property
    def events(self) -> list[Event]:
        self.catch_up()
        return list(self._events)

    @property
    def problems(self) -> list[Problem]:
        """Rules that a write of ours broke, as far as can be told by field managers."""
        self.catch_up()
        return [*self._replay.problems, *self._replay.unfinished()]

    @property
    def others(self) -> list[Problem]:
        """The same by writes of others."""
        self.catch_up()
        return list(self._replay.others)

    @property
    def notes(self) -> set[str]:
        self.catch_up()
        return set(self._replay.notes)

    def assert_clean(self, allowed: Iterable[str] = ()) -> None:
        """Fail with all problems, in order, but those of `allowed` rules."""
        found = [str(problem) for problem in self.problems if problem.rule not in set(allowed)]
        assert not found, "\n".join(found)

    def catch_up(self) -> None:
        """Wait until all that is written by now has been read."""
        self._marks += 1
        self._post("/v3/kv/put", {"key": _b64(_MARK), "value": _b64(f"{id(self)} {self._marks}")}).close()
        with self._changed:
            self._changed.wait_for(lambda: self._seen >= self._marks or self._failed, _TIMEOUT_S)
            if self._seen < self._marks:
                raise RuntimeError(f"the recorder reads no more: {self._failed or 'it is too slow'}")

    def start(self) -> None:
        self._reader.start()

    def close(self) -> None:
        # Closing alone would wait for the reader.
        with socket.socket(fileno=os.dup(self._stream.fileno())) as connection:
            connection.shutdown(socket.SHUT_RDWR)
        self._reader.join(_TIMEOUT_S)
        self._stream.close()

    def _post(self, path: str, body: Object, timeout_s: float | None = _TIMEOUT_S) -> Any:
        request = urllib.request.Request(self._etcd + path, json.dumps(body).encode(), method="POST")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        return opener.open(request, timeout=timeout_s)

    def _read(self) -> None:
        try:
            for line in self._stream:
                result = json.loads(line)["result"]
                with self._changed:
                    for event in result.get("events", ()):
                        self._take(event)
                    self._changed.notify_all()
            reason: Exception = EOFError("etcd closed the stream")
        except Exception as error:
            reason = error
        with self._changed:
            self._failed = reason
            self._changed.notify_all()

    def _take(self, event: Object) -> None:
        kv = event["kv"]
        key = base64.b64decode(kv["key"]).decode()
        if key == _MARK:
            recorder, _, number = base64.b64decode(kv["value"]).decode().partition(" ")
            if recorder == str(id(self)):
                self._seen = int(number)
            return
        name = key.removeprefix(f"{_PREFIX}/")
        before = _decoded(event.get("prev_kv"))
        after = None if event.get("type") == "DELETE" else _decoded(kv)
        if after is not None:
            by = writer(before, after)
        else:
            by = "by hand" if name in self._by_hand else ""
            self._by_hand.discard(name)
        found = Event(int(kv["mod_revision"]), name, before, after, by)
        self._events.append(found)
        self._replay.take(found)


def writer(before: Object | None, after: Object) -> str:
    """The field manager that made the difference: "" when none has a record."""
    old = {_entry(e): e for e in _managed(before)}
    new = {_entry(e): e for e in _managed(after)}
    changed = [e for key, e in new.items() if key not in old] or [
        e for key, e in new.items() if old[key] != e
    ]
    changed = changed or list(new.values())  # the same fields twice in a second leave no trace
    latest = max((e.get("time", "") for e in changed), default="")
    return next((str(e["manager"]) for e in changed if e.get("time", "") == latest), "")


def _managed(thing: Object | None) -> list[Object]:
    return list(thing["metadata"].get("managedFields") or []) if thing else []


def _entry(entry: Object) -> tuple[str, str, str]:
    return entry["manager"], entry.get("operation", ""), entry.get("subresource", "")


def _decoded(kv: Object | None) -> Object | None:
    return json.loads(base64.b64decode(kv["value"])) if kv and "value" in kv else None


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@asynccontextmanager
async def recording(plane: ControlPlane) -> AsyncIterator[Recorder]:
    """Record what is written to the HyperNodes of a control plane from now on."""
    recorder = await asyncio.to_thread(Recorder, plane.etcd)
    recorder.start()
    try:
        yield recorder
    finally:
        await asyncio.to_thread(recorder.close)

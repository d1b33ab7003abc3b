"""The demo on a real API server: it creates Node objects for the simulated nodes, and shows kubectl's output.

It needs a cluster without nodes, since the scheduler would assign pods to simulated ones. The demo deletes
all its objects at the end.
"""

import asyncio
import contextlib
import shutil
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperscout_kubernetes.paths import api_path

from hyperscout_cli.demo.demo_collector import DemoError
from hyperscout_cli.shared.tables import Row, Table, lines

if TYPE_CHECKING:
    from hyperscout_kubernetes.client import Kube

_HYPERNODE = "topology.volcano.sh/v1alpha1"
NODES = api_path("v1", "nodes")
HYPERNODES = api_path(_HYPERNODE, "hypernodes")
STEP_TIMEOUT_S = 120.0
_LOOK_EVERY_S = 0.2
_KEPT_LINES = 500
_AT_ONCE = 16
_HEADINGS = ("NAME", "TIER", "TIERNAME", "NODES", "READY", "DEGRADED", "REASON", "AGE")
_NAME, _DEGRADED = _HEADINGS.index("NAME"), _HEADINGS.index("DEGRADED")


class Kubectl:
    """The output of `kubectl get hypernodes`, and of its watch."""

    asked = "kubectl get hypernodes"

    def __init__(self, program: str, kubeconfig: Path) -> None:
        self._command = (program, f"--kubeconfig={kubeconfig}", "get", "hypernodes")
        self._seen: deque[str] = deque(maxlen=_KEPT_LINES)
        self._changed = asyncio.Condition()
        self._failed = ""

    async def whole(self, names: frozenset[str], timeout_s: float = STEP_TIMEOUT_S) -> str:
        """The table, once it has all these names with all columns. Raises DemoError."""
        table = ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while True:
                    table = await self._get()
                    rows = {row[_NAME] for row in _rows(table.splitlines())}
                    if rows >= names:
                        return table
                    await asyncio.sleep(_LOOK_EVERY_S)
        missing = f"expected within {timeout_s:g} s: kubectl shows {len(names)} HyperNodes"
        raise DemoError(f"{missing}; it shows\n{table}")

    async def turned(self, name: str, degraded: str, timeout_s: float = STEP_TIMEOUT_S) -> str:
        """The line of the watch in which a HyperNode has this status. Raises DemoError."""
        found: list[str] = []

        def holds() -> bool:
            said = [(line, row) for line in self._seen for row in _rows([line]) if row[_NAME] == name]
            found[:] = [line for line, row in said[-1:] if row[_DEGRADED] == degraded]
            return bool(found or self._failed)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(holds)
        if found:
            return f"{found[0]}\n"
        why = self._failed or f"nothing within {timeout_s:g} s"
        raise DemoError(f"expected of kubectl get hypernodes -w: {name} with DEGRADED {degraded}; {why}")

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Run `kubectl get hypernodes -w` in the background."""
        words = (*self._command, "--watch", "--no-headers")
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        reader = asyncio.create_task(self._read(process), name="kubectl watch")
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await reader

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None  # noqa: S101 (stdout is a pipe)
        while line := await process.stdout.readline():
            async with self._changed:
                self._seen.append(line.decode("utf-8", "replace").rstrip())
                self._changed.notify_all()
        await process.wait()
        async with self._changed:
            self._failed = "it has ended"
            self._changed.notify_all()

    async def _get(self) -> str:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, complaint = await process.communicate()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise
        if process.returncode:
            raise DemoError(f"kubectl get hypernodes: {complaint.decode('utf-8', 'replace').strip()}")
        return out.decode("utf-8", "replace")


class Plain:
    """The same tables from the API, without kubectl."""

    asked = "HyperNodes in the API server"

    def __init__(self, kube: "Kube") -> None:
        self._kube = kube

    async def whole(self, names: frozenset[str], timeout_s: float = STEP_TIMEOUT_S) -> str:
        def holds(rows: list[tuple[str, ...]]) -> bool:
            return {row[_NAME] for row in rows if all(row[:-1])} >= names

        return await self._until(holds, names, timeout_s)

    async def turned(self, name: str, degraded: str, timeout_s: float = STEP_TIMEOUT_S) -> str:
        def holds(rows: list[tuple[str, ...]]) -> bool:
            return any(row[_NAME] == name and row[_DEGRADED] == degraded for row in rows)

        return await self._until(holds, frozenset([name]), timeout_s)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        yield

    async def _until(
        self, holds: Callable[[list[tuple[str, ...]]], bool], names: frozenset[str], timeout_s: float
    ) -> str:
        rows: list[tuple[str, ...]] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while True:
                    things, _ = await self._kube.list(HYPERNODES)
                    rows = [_cells(thing) for thing in things]
                    if holds(rows):
                        return _table(row for row in rows if row[_NAME] in names)
                    await asyncio.sleep(_LOOK_EVERY_S)
        raise DemoError(f"not within {timeout_s:g} s; the API server has\n{_table(rows)}")


Witness = Kubectl | Plain


def _rows(text: Iterable[str]) -> Iterator[list[str]]:
    """Rows of a table of kubectl that have all columns (an empty one would shift the others)."""
    for line in text:
        words = line.split()
        if len(words) == len(_HEADINGS) and words[_NAME] != _HEADINGS[_NAME]:
            yield words


def _cells(thing: dict[str, Any]) -> tuple[str, ...]:
    metadata, spec = thing["metadata"], thing["spec"]
    said = {c["type"]: c for c in thing.get("status", {}).get("conditions") or ()}
    nodes = (metadata.get("annotations") or {}).get("hyperscout.io/nodes", "")
    ready, degraded = (said.get(kind, {}).get("status", "") for kind in ("Ready", "Degraded"))
    reason = said.get("Degraded", {}).get("reason", "")
    return (metadata["name"], str(spec["tier"]), spec.get("tierName", ""), nodes, ready, degraded, reason, "")


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    found = tuple(Row(cells[_NAME], cells[:-1]) for cells in rows)
    return "".join(lines(Table("hypernode", _HEADINGS[:-1], (), found)))


@asynccontextmanager
async def demo_cluster(kubeconfig: Path, hosts: Sequence[str]) -> AsyncIterator[Witness]:
    """Create nodes with these names in an empty cluster, and delete all objects at the end. Raises DemoError.

    The collector must run inside of it, so that it has ended when the HyperNodes are deleted.
    """
    # Imported here: a demo without a cluster does not need the Kubernetes client.
    from hyperscout_kubernetes.client import connect
    from hyperscout_kubernetes.errors import KubeError

    try:
        async with await connect(kubeconfig, writes_per_s=2000.0, burst=2000) as kube:
            await _demand_empty(kube)
            try:
                await _each(kube.write("POST", NODES, _node(host)) for host in hosts)
                program = shutil.which("kubectl")
                yield Kubectl(program, kubeconfig) if program else Plain(kube)
            finally:
                # Delete the roots first, so that no parent names a deleted child.
                things, _ = await kube.list(HYPERNODES)
                for thing in sorted(things, key=lambda thing: -int(thing["spec"]["tier"])):
                    await _delete(kube, api_path(_HYPERNODE, "hypernodes", thing["metadata"]["name"]))
                await _each(_delete(kube, api_path("v1", "nodes", host)) for host in hosts)
    except KubeError as error:
        raise DemoError(f"{kubeconfig}: {error}") from error


async def _demand_empty(kube: "Kube") -> None:
    from hyperscout_kubernetes.errors import KubeError

    nodes = await kube.get(NODES, {"limit": 1})
    if nodes.get("items"):
        raise DemoError(f"the cluster at {kube.host} has nodes: the demo needs a cluster without nodes")
    try:
        things = await kube.get(HYPERNODES, {"limit": 1})
    except KubeError as error:
        hint = "to install the CRD: hyperscout crd show | kubectl apply --server-side -f -"
        raise DemoError(f"{error}; {hint}") from error
    if things.get("items"):
        raise DemoError(
            f"the cluster at {kube.host} has HyperNodes: the demo needs a cluster without HyperNodes"
        )


async def _each(writes: Iterable[Any]) -> None:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(write: Any) -> None:
        async with slots:
            await write

    await asyncio.gather(*map(one, writes))


async def _delete(kube: "Kube", path: str) -> None:
    from hyperscout_kubernetes.errors import NotFoundError

    with contextlib.suppress(NotFoundError):
        await kube.write("DELETE", path)


def _node(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "hyperscout.io/demo": "true"}},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Simulated"}]},
    }

"""Agents name unchanged findings after a restart of a real collector, and it holds what they found."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

from hyperscout.v1.discovery_pb2 import Hello
from hyperscout.v1.finding_pb2 import FindingKey
from hyperscout_agent.findings.store import Batch, FindingStore
from hyperscout_agent.uplink.uplink import Uplink
from support.collector_process import collector_process, listed
from support.findings import lldp
from support.waiting import TIMEOUT_S, until


class RecordedStore(FindingStore):
    """Keeps the batches that were sent."""

    batches: list[Batch]

    def next_batch(self, max_bytes: int, max_findings: int) -> Batch | None:
        batch = super().next_batch(max_bytes, max_findings)
        if batch is not None:
            self.batches.append(batch)
        return batch


@contextlib.asynccontextmanager
async def streaming(store: FindingStore, address: str) -> AsyncIterator[Uplink]:
    hello = Hello(version="test", probes=["lldp"], instance=7)
    uplink = Uplink([address], store, hello, rng=Random(1), sleep=lambda _: asyncio.sleep(0.05))
    task = asyncio.create_task(uplink.run())
    try:
        yield uplink
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(task, TIMEOUT_S)


async def test_restarts(tmp_path: Path) -> None:
    store = RecordedStore("n1")
    store.batches = []
    for i in range(4):
        store.put(lldp("n1", f"eth{i}", time.time_ns()))

    async def check(address: str, sessions: int, whole: set[str]) -> None:
        await until(lambda: uplink.stats.sessions >= sessions and store.dirty == 0)
        sent = {finding.key.subject for batch in store.batches for finding in batch.findings}
        named = {one.subject for batch in store.batches for one in batch.unchanged}
        assert sent == whole
        assert named == store.subjects("lldp") - whole
        stored = {one.finding.key.subject: one.finding for one in await listed(address)}
        assert stored == {name: store.get("lldp", name) for name in store.subjects("lldp")}
        store.batches.clear()

    async with collector_process(tmp_path) as first:
        address = first.address
        async with streaming(store, address) as uplink:
            await check(address, 1, {"eth0", "eth1", "eth2", "eth3"})
            assert await first.stop() == 0
            await until(lambda: not uplink.stats.connected)
            store.put(lldp("n1", "eth0", time.time_ns(), neighbour="leaf-2"))
            store.remove(FindingKey(node="n1", probe="lldp", subject="eth1"))
            async with collector_process(tmp_path, listen=address) as second:
                await check(address, 2, {"eth0"})
                assert await second.stop() == 0
            (tmp_path / "evidence.db").unlink()
            async with collector_process(tmp_path, listen=address):
                await check(address, 3, {"eth0", "eth2", "eth3"})

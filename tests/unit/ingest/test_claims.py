"""What is recorded of streams while the store fails."""

import asyncio
from unittest.mock import Mock

import pytest
from hyperscout.v1.discovery_pb2 import Hello
from hyperscout_collector.ingest.claims import Claims
from hyperscout_collector.ingest.streams import AgentStream, StreamEndedError
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.replicas import LostClaim, Mark, ReplicaTables
from support.findings import T0


async def _keep(nodes: object) -> None:
    pass


async def test_a_claim_without_an_answer_is_ended() -> None:
    tables = Mock(ReplicaTables)
    tables.change.side_effect = [[7], StoreError("away"), StoreError("away"), [0, 9]]
    claims = Claims(tables, load=_keep, drop=_keep)
    first, second = (AgentStream(Hello(node=node), Mock(asyncio.Task), T0, T0) for node in ("n1", "n2"))
    claiming = asyncio.create_task(claims.claim(first))
    await asyncio.sleep(0)
    assert await claims.flush()
    await claiming
    claims.ended(first)
    claiming = asyncio.create_task(claims.claim(second))
    await asyncio.sleep(0)
    for _ in range(2):
        assert not await claims.flush()
    with pytest.raises(StreamEndedError, match="no stream is taken: away"):
        await claiming
    assert await claims.flush()
    assert tables.change.call_args.args == ([Mark("n1", 7, ended=True), LostClaim("n2", 7)],)

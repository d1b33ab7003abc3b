"""What the leader reads of other replicas while the store fails."""

import contextlib
from collections.abc import AsyncIterator
from unittest.mock import Mock

import pytest
from hyperscout.v1.discovery_pb2 import Hello, NcclId
from hyperscout_collector.app.ingest.other_replicas import OtherReplicas, Receivers, SharedStore
from hyperscout_collector.evidence.committer import Committer
from hyperscout_collector.evidence.postgresql import EvidenceNews, PostgresqlStore
from hyperscout_collector.evidence.state import EvidenceState
from hyperscout_collector.ingest.streams import Streams
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.replicas import (
    LEADER,
    NCCL_ID,
    Listener,
    Message,
    ReplicaTables,
    StreamNews,
    StreamRow,
)


@contextlib.asynccontextmanager
async def paused() -> AsyncIterator[None]:
    yield


async def test_messages_outlast_a_read_that_fails() -> None:
    """The read of the streams deletes the messages, and then the findings cannot be read."""
    stream = StreamRow("n1", "b", Hello(node="n1").SerializeToString(), 7, full_state=False, ended=False)
    sent = Message(LEADER, 0, "n1", 7, NCCL_ID, NcclId(task_id=3).SerializeToString())
    tables, evidence, committer = Mock(ReplicaTables), Mock(PostgresqlStore), Mock(Committer)
    tables.owner = Mock(replica="a")
    tables.news.side_effect = [StreamNews(5, 1, [stream], [sent]), StreamNews(5, 1, [stream], [])]
    evidence.news.side_effect = [StoreError("away"), EvidenceNews(5, [], [], [], None, [], {})]
    committer.paused = paused
    receivers = Mock(Receivers, connections=Mock(), take_id=Mock())
    replicas = OtherReplicas(
        SharedStore(evidence, tables, Mock(Listener), term=1),
        Streams(10),
        EvidenceState(),
        committer,
        since=0,
        receivers=receivers,
        silence_s=5.0,
        clock_ns=lambda: 1,
    )
    with pytest.raises(StoreError):
        await replicas.read()
    receivers.take_id.assert_not_called()
    await replicas.read()
    receivers.take_id.assert_called_once_with("n1", NcclId(task_id=3))

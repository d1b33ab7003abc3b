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


def other_replicas(tables: Mock, evidence: Mock, receivers: Mock) -> OtherReplicas:
    committer = Mock(Committer)
    tables.owner = Mock(replica="a")
    committer.paused = paused
    return OtherReplicas(
        SharedStore(evidence, tables, Mock(Listener), term=1),
        Streams(10),
        EvidenceState(),
        committer,
        since=0,
        receivers=receivers,
        silence_s=5.0,
        clock_ns=lambda: 1,
    )


NONE = EvidenceNews(5, [], [], [], None, [], {})


async def test_messages_outlast_a_read_that_fails() -> None:
    """The read of the streams deletes the messages, and then the findings cannot be read."""
    stream = StreamRow("n1", "b", Hello(node="n1").SerializeToString(), 7, full_state=False, ended=False)
    sent = Message(LEADER, 0, "n1", 7, NCCL_ID, NcclId(task_id=3).SerializeToString())
    tables, evidence = Mock(ReplicaTables), Mock(PostgresqlStore)
    tables.take_news.side_effect = [StreamNews(5, 1, [stream], [sent]), StreamNews(5, 1, [stream], [])]
    evidence.news.side_effect = [StoreError("away"), NONE]
    receivers = Mock(Receivers, connections=Mock(), take_id=Mock())
    replicas = other_replicas(tables, evidence, receivers)
    with pytest.raises(StoreError):
        await replicas.read()
    receivers.take_id.assert_not_called()
    await replicas.read()
    receivers.take_id.assert_called_once_with("n1", NcclId(task_id=3))


async def test_a_stream_that_cannot_be_decoded_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    rows = [
        StreamRow("n1", "b", b"\xff", 7, full_state=True, ended=False),
        StreamRow("n2", "b", Hello(node="n2").SerializeToString(), 7, full_state=True, ended=False),
    ]
    tables, evidence = Mock(ReplicaTables), Mock(PostgresqlStore)
    tables.take_news.return_value, evidence.news.return_value = StreamNews(5, 1, rows, []), NONE
    receivers = Mock(Receivers, connections=Mock(), full_state=Mock())
    await other_replicas(tables, evidence, receivers).read()
    receivers.full_state.assert_called_once_with("n2")
    assert "n1: its stream at replica b is left out" in caplog.text

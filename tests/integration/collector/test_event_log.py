"""The event log of a running collector, over gRPC."""

from pathlib import Path

import grpc.aio
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from hyperscout_collector.app.status.event_logs import replay
from support.rest_collector import played, rest_collector


async def test_the_log_of_a_running_collector_is_replayed(tmp_path: Path) -> None:
    lines: list[str] = []
    async with (
        rest_collector(tmp_path) as collector,
        played(collector),
        grpc.aio.insecure_channel(collector.address) as channel,
    ):
        async for part in TopologyServiceStub(channel).GetEventLog(pb.GetEventLogRequest()):
            lines += part.lines
    found = replay(lines, "events.jsonl")
    assert found.difference is None
    assert found.machines == 2, "sweep leases and generations"
    assert any('"SweepSeen"' in line for line in lines)
    assert any('"Offer"' in line for line in lines)

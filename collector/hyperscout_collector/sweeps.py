"""Sweep leases between their state machine (`core.leases`), the streams and the evidence."""

from collections.abc import Callable, Sequence

from hyperscout.v1.topology_pb2 import LeaseStatus

from hyperscout_collector.evidence.state import EvidenceState, KeyChange
from hyperscout_collector.ingest.streams import AgentStream, Streams


class Sweeps:
    def __init__(
        self, interval_s: float, streams: Streams, state: EvidenceState, clock_ns: Callable[[], int]
    ) -> None:
        self.problems: list[str] = []

    def may_sweep(self, node: str) -> bool:
        return True

    def refuse_sweep(self, node: str, lease_id: str) -> str | None:
        return None

    def connected(self, stream: AgentStream) -> None: ...

    def disconnected(self, stream: AgentStream) -> None: ...

    def follow(self, changes: Sequence[KeyChange]) -> None: ...

    def tick(self) -> None: ...

    def leases(self) -> list[LeaseStatus]:
        return []

"""The sweep leases that a standby passed on from the leader to its agents: a `SweepGate`.

The leader decides. The standby knows which leases it passed on, and tells the leader of sweeps that failed.
"""

from collections.abc import Callable

from hyperscout.v1.discovery_pb2 import (
    StopMeasuring,
    StreamFindingsResponse,
    SweepLease,
    SweepRevoke,
)
from hyperscout_formats.facts.facts import InfinibandPort

from hyperscout_collector.evidence.state import EvidenceState
from hyperscout_collector.ingest.streams import Streams

_CHANGE = "another replica of the collector leads now"


class PassedLeases:
    """`failed`: tells the leader that a sweep of this node failed: lease and reason."""

    def __init__(
        self, streams: Streams, state: EvidenceState, failed: Callable[[str, SweepRevoke], None]
    ) -> None:
        self._streams = streams
        self._state = state
        self._failed = failed
        self._leases: dict[str, dict[str, SweepLease]] = {}  # by node and id

    def passed(self, node: str, directive: StreamFindingsResponse) -> None:
        """A message of the leader goes to the agent of this node."""
        match directive.WhichOneof("message"):
            case "lease":
                self._leases.setdefault(node, {})[directive.lease.lease_id] = directive.lease
            case "revoke":
                self._leases.get(node, {}).pop(directive.revoke.lease_id, None)

    def gone(self, node: str) -> None:
        """The stream of this node ended, and its leases with it."""
        self._leases.pop(node, None)

    def leader_changed(self) -> None:
        """End what the former leader asked for: the next one grants leases and measures anew."""
        for stream in self._streams:
            for lease_id in self._leases.pop(stream.node, {}):
                revoke = SweepRevoke(lease_id=lease_id, reason=_CHANGE)
                stream.tell(StreamFindingsResponse(revoke=revoke))
            stream.tell(StreamFindingsResponse(stop_measuring=StopMeasuring(reason=_CHANGE)))

    def may_sweep(self, node: str) -> bool:
        return bool(self._leases.get(node))

    def refuse_sweep(self, node: str, lease_id: str, port_guid: int | None) -> str | None:
        lease = self._leases.get(node, {}).get(lease_id)
        if lease is None:
            reason = f"{node} does not hold the sweep lease {lease_id!r}"
            if (stream := self._streams.get(node)) is not None:
                revoke = SweepRevoke(lease_id=lease_id, reason=reason)
                stream.tell(StreamFindingsResponse(revoke=revoke))
            return reason
        if port_guid is None or port_guid == self._guid(node, lease):
            return None
        reason = f"the sweep of {node} does not start at the port of its lease {lease_id!r}"
        self._failed(node, SweepRevoke(lease_id=lease_id, reason=reason))
        return reason

    def holds(self, node: str, lease_id: str) -> bool:
        return lease_id in self._leases.get(node, {})

    def unreadable(self, node: str, lease_id: str, reason: str) -> None:
        self._failed(node, SweepRevoke(lease_id=lease_id, reason=reason))

    def _guid(self, node: str, lease: SweepLease) -> int | None:
        """The GUID of the port of a lease, as its node reports it."""
        ports = (row.fact for row in self._state.rows_of_node(node))
        for port in ports:
            if isinstance(port, InfinibandPort) and (port.device, port.port) == (lease.device, lease.port):
                return port.port_guid
        return None

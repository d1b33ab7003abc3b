"""Events of the history as the API sends them, and what to call them for whoever sends them elsewhere."""

from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.finding_pb2 import FindingKey
from hyperscout_topology.events import Event
from hyperscout_topology.proto import end_to_proto

from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.history.causes import Cause


def event_to_proto(event: Event) -> pb.HistoryEvent:
    """Without id, time, generation and cause: those are its generation's, which the history knows."""
    return pb.HistoryEvent(
        kind=event.kind,
        hypernode=event.hypernode,
        node=event.node,
        subject=end_to_proto(event.subject) if event.subject else None,
        peer=end_to_proto(event.peer) if event.peer else None,
        what=event.what,
        before=event.before,
        after=event.after,
        reason=event.reason,
        message=event.message,
    )


def cause_from_proto(message: pb.Cause) -> Cause:
    """The other way round."""
    keys = tuple(Key(x.node, x.probe, x.subject) for x in message.findings)
    return Cause(message.kind, keys, message.findings_total)


def cause_to_proto(cause: Cause) -> pb.Cause:
    """Its findings are those that are named."""
    keys = [FindingKey(node=key.node, probe=key.probe, subject=key.subject) for key in cause.findings]
    return pb.Cause(kind=cause.kind, findings=keys, findings_total=cause.total)

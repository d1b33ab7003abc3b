"""Converts events and causes of the history to and from the API's messages."""

from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.finding_pb2 import FindingKey
from hyperscout_topology.events import Event
from hyperscout_topology.proto import end_to_proto

from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.history.causes import Cause


def event_to_proto(event: Event) -> pb.HistoryEvent:
    """Returns the message without id, time, generation and cause. These belong to the generation."""
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
    """Converts a message to a cause."""
    keys = tuple(Key(x.node, x.probe, x.subject) for x in message.findings)
    return Cause(message.kind, keys, message.findings_total)


def cause_to_proto(cause: Cause) -> pb.Cause:
    """Converts a cause to a message. All its findings are named."""
    keys = [FindingKey(node=key.node, probe=key.probe, subject=key.subject) for key in cause.findings]
    return pb.Cause(kind=cause.kind, findings=keys, findings_total=cause.total)

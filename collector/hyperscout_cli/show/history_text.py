"""Events of the history as text: subject, change and cause."""

from typing import TYPE_CHECKING

from hyperscout_formats.text.counts import and_more
from hyperscout_runtime.units import rfc3339

from hyperscout_cli.shared.tables import Row, Table, age

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hyperscout.v1.topology_pb2 import Cause, Endpoint, FlapCount, HistoryEvent

_SIGNS = {"Added": "+", "Appeared": "+", "Removed": "-", "Cleared": "-"}
_THINGS = ("Link", "Switch", "Node", "HyperNode", "Anomaly")
_NAMED = 3  # findings of a cause in one line


EVENT_HEADINGS = ("TIME", "KIND", "SUBJECT", "CHANGE")
EVENT_MORE = ("GENERATION", "HYPERNODE", "CAUSE")


def event_row(event: "HistoryEvent") -> Row:
    from hyperscout_topology.objects import plain

    return Row(
        str(event.id),
        (rfc3339(event.at.ToNanoseconds()), event.kind, about(event), change(event)),
        (str(event.generation), event.hypernode, cause(event.cause)),
        plain(event),
    )


def event_table(rows: "Iterable[Row]") -> Table:
    """The table of some events."""
    return Table("event", EVENT_HEADINGS, EVENT_MORE, tuple(rows))


def flap_table(flaps: "Iterable[FlapCount]", now_ns: int) -> Table:
    """Repeated changes, most often first."""
    from hyperscout_topology.objects import plain

    rows = tuple(
        Row(
            x.hypernode,
            (str(x.changes), x.what, _ends(x) or x.hypernode, age(x.last.ToNanoseconds(), now_ns)),
            (x.hypernode,),
            plain(x),
        )
        for x in flaps
    )
    return Table("flap", ("CHANGES", "WHAT", "SUBJECT", "LAST"), ("HYPERNODE",), rows)


def about(event: "HistoryEvent") -> str:
    """The subject of an event: a cable, device, node or HyperNode."""
    if event.kind == "GenerationPublished":
        return f"generation {event.generation}"
    if event.kind == "ConditionChanged":
        return event.hypernode
    return _ends(event) or (event.node if event.kind.startswith("Node") else event.hypernode)


def change(event: "HistoryEvent") -> str:
    """The change."""
    if event.kind == "ConditionChanged":
        return f"{event.what} {event.before or 'unset'} -> {event.after} ({event.reason}): {event.message}"
    return f"{event.what}: {event.message}" if event.what else event.message


def cause(found: "Cause") -> str:
    """The cause: "findings: gpu-01 lldp eth0 and 3 more"."""
    names = [" ".join((key.node, key.probe, key.subject)).strip() for key in found.findings[:_NAMED]]
    more = max(found.findings_total, len(found.findings)) - len(names)
    return f"{found.kind}: {', '.join(names)}{and_more(more)}" if names else found.kind


def difference_line(event: "HistoryEvent") -> str:
    """The line of `diff` for an event: `+` new, `-` removed, `~` changed; with its time and cause."""
    thing = next((word for word in _THINGS if event.kind.startswith(word)), "")
    sign = _SIGNS.get(event.kind.removeprefix(thing), "~")
    name = about(event)
    if event.kind == "ConditionChanged":
        text = f"{event.what} {event.before or 'unset'} -> {event.after} ({event.reason})"
    elif thing == "Anomaly":
        name = f"{event.what} {name}"
        text = event.message.removeprefix("over: ")
    else:
        text = "" if thing in ("Link", "Switch") else event.message  # else the message repeats the name
    since = f" (since {rfc3339(event.at.ToNanoseconds())}, {cause(event.cause)})" if event.id else ""
    return f"{sign} {(thing or 'HyperNode').lower()} {name}{': ' if text else ''}{text}{since}"


def _ends(found: "HistoryEvent | FlapCount") -> str:
    ends = [_end(getattr(found, name)) for name in ("subject", "peer") if found.HasField(name)]
    return " -- ".join(ends)


def _end(end: "Endpoint") -> str:
    from hyperscout_topology.topology import Endpoint, say

    port = end.port if end.HasField("port") else None
    return say(Endpoint(end.device, end.name or end.device, port, end.adapter))

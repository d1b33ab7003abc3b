"""The JSON Schemas of all MQTT messages.

`make mqtt-schemas` writes them into docs/schemas/mqtt; a test fails when those are stale. Source: JSON
Schema, draft 2020-12.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hyperscout_topology.events import KINDS
from hyperscout_topology.topology import ANOMALY_KINDS

from hyperscout_collector.ingest.findings_schema import FINDINGS, TIME, Schema, top


def _text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description} | more


def _whole(description: str, least: int = 0, **more: Any) -> Schema:
    return {"type": "integer", "minimum": least, "description": description} | more


def _object(description: str, required: Mapping[str, Schema], **optional: Schema) -> Schema:
    return {
        "type": "object",
        "description": description,
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


def _list(of: Schema, description: str, **more: Any) -> Schema:
    return {"type": "array", "items": of, "description": description} | more


_WHEN = _text("UTC, RFC 3339 in whole seconds", pattern=TIME)
_GENERATION = _whole("generation of the collector's picture; it only grows")
_ENDPOINT = _object(
    "a device, and a port of it where one is known",
    {
        "device": _text("GUID, chassis id or name of a node; the identity"),
        "name": _text("what people call it"),
        "port": {"type": ["string", "null"], "description": "null where no port is known"},
    },
)
_SOMEWHERE = {"anyOf": [_ENDPOINT, {"type": "null"}], "description": "null = it has no other end"}
_CONDITION = _object(
    "as metav1.Condition of Kubernetes",
    {
        "type": _text("Ready, Degraded, Consistent, Stale"),
        "status": {"enum": ["True", "False", "Unknown"]},
        "reason": _text("one word in CamelCase"),
        "message": _text("for people"),
    },
    lastTransitionTime=_WHEN | {"description": "when its status last flipped, UTC"},
    nodes=_list(_text("a node"), "all nodes that are not ready or stale; left out where there are none"),
    switches=_list(_text("a switch's id"), "all switches that are stale; left out where there are none"),
)
_ANOMALY = _object(
    "what does not fit, and counts against this HyperNode",
    {
        "kind": {"enum": list(ANOMALY_KINDS)},
        "subject": _ENDPOINT,
        "peer": _SOMEWHERE,
        "tier": {"type": ["integer", "null"], "description": "tier of the HyperNode that it counts against"},
        "sources": _list(_text("a probe"), "who saw it"),
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "message": _text("for people"),
        "hypernode": {"type": ["string", "null"], "description": "the HyperNode that it counts against"},
    },
    since=_WHEN | {"description": "when it was first seen, UTC"},
    nodes=_list(_text("a node"), "all nodes that it is about, where the ends do not name them"),
)


def _measured(unit: str, bad: str) -> Schema:
    number = {"type": "number", "minimum": 0}
    return _object(
        f"measured between nodes whose lowest common HyperNode this is, in {unit}",
        {
            "median": number | {"description": unit},
            "p99": number | {"description": f"{unit}; the worse end: the {bad} percentile"},
            "samples": _whole("pairs of nodes and rails; 0 = only the median is known"),
        },
        measuredAt=_WHEN | {"description": "when the newest was measured, UTC"},
    )


HYPERNODE = top(
    "hypernode",
    "State of one HyperNode, retained at PREFIX/hypernodes/NAME; an empty payload: it is no more",
    _object(
        "the object of `hyperscout get hypernodes -o json`, with its anomalies",
        {
            "name": _text("its name, the last level of the topic"),
            "tier": _whole("1 = closest to the hosts", 1),
            "tierName": _text("performance class: nvlink, leaf, pod, core ..."),
            "parent": {"type": ["string", "null"], "description": "the HyperNode above; null at a root"},
            "children": _list(_text("a HyperNode"), "HyperNodes right below, sorted"),
            "nodes": _list(_text("a node"), "all nodes below, sorted"),
            "switches": _list(_text("a switch's id"), "switches that its nodes share"),
            "conditions": _list(_CONDITION, "at most one of each type"),
            "source": {"enum": ["wires", "nvlink", "latency", "labels"], "description": "what tells of it"},
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
            "generation": _GENERATION | {"description": "the generation in which this state was published"},
            "anomalies": _list(_ANOMALY, "what counts against it"),
        },
        latencyUs=_measured("microseconds, round trip", "99th"),
        bandwidthGbps=_measured("gigabits per second", "first"),
    ),
)

COLLECTOR = top(
    "collector",
    "State of the collector that leads, retained at PREFIX/collector; offline is its last will",
    _object(
        "who publishes, and up to which generation all states are out",
        {
            "state": {
                "enum": ["online", "syncing", "offline"],
                "description": "syncing: it has connected and has not brought all states up to date yet; "
                "offline: what stands at the topics is what was last known",
            },
            "identity": _text("name of the replica that leads"),
            "instance": _text("another for each start of the process", pattern="^[0-9a-f]{16}$"),
            "version": _text("of the collector"),
            "generation": _GENERATION | {"description": "all states are of this generation; 0 = none is out"},
            "hypernodes": _whole("how many states are retained"),
        },
    ),
)

EVENTS = top(
    "events",
    "What changed in one generation, at PREFIX/events; not retained",
    _object(
        "changes of one generation; a generation with many takes several messages",
        {
            "generation": _GENERATION,
            "at": _WHEN | {"description": "when the generation was published, UTC"},
            "lost": _whole("changes before these that found no room while the broker was away"),
            "events": _list(
                _object(
                    "one thing that was other in the generation before; fields that say nothing are left out",
                    {
                        "kind": {"enum": [kind for kind in KINDS if kind != "GenerationPublished"]},
                        "message": _text("for people"),
                    },
                    hypernode=_text("the HyperNode that it is about, or that it counts against"),
                    node=_text("the node that it is about"),
                    subject=_ENDPOINT,
                    peer=_ENDPOINT,
                    what=_text("type of a condition, or kind of an anomaly"),
                    before=_text("status of a condition before, or where it was before a move"),
                    after=_text("the same after"),
                    reason=_text("one word in CamelCase"),
                ),
                "in the order of `hyperscout history`",
                minItems=1,
            ),
        },
    ),
)

REFUSALS = top(
    "refusals",
    "What was not taken of a message at PREFIX/findings/TOPIC, at PREFIX/refusals/TOPIC; not retained",
    _object(
        "a message of which something was refused",
        {
            "at": _WHEN | {"description": "when it came, UTC"},
            "reason": _text("why nothing of it was taken; empty = the rest was"),
            "refused": _list(
                _object(
                    "one finding, or one that was to be removed",
                    {
                        "node": _text("as it named itself"),
                        "probe": _text("as it named itself"),
                        "subject": _text("as it named itself"),
                        "reason": _text("why"),
                    },
                ),
                "the first of them",
                maxItems=100,
            ),
            "more": _whole("others that were refused, too"),
        },
    ),
)

ALL: Mapping[str, Schema] = {
    "hypernode": HYPERNODE,
    "collector": COLLECTOR,
    "events": EVENTS,
    "findings": FINDINGS,
    "refusals": REFUSALS,
}


def files() -> dict[str, str]:
    """Returns the texts of the committed files, by file name."""
    return {f"{name}.schema.json": json.dumps(schema, indent=2) + "\n" for name, schema in ALL.items()}


def main(folder: Path) -> None:
    """Write the schema files into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

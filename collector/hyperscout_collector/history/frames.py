"""Encodes the topologies of generations: one whole topology, then steps from each generation to the next.

A whole topology is a `Topology` message without its links, followed by the links in columns: a million links
do not need a million objects. A step is a `TopologyDelta` without the unchanged lists. It is deflated with
the message of the whole topology as dictionary (zlib's `zdict`): a flapping cable among a thousand nodes
takes about 300 bytes. A line of JSON precedes the step: `gone` and `put` are the positions of anomalies that
were removed (from the list before) and added (in the list after); `same` names the unchanged lists.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_topology.delta import delta
from hyperscout_topology.details import extended
from hyperscout_topology.fold import folded
from hyperscout_topology.link_changes import table_of, without
from hyperscout_topology.proto import link_from_proto, topology_to_proto
from hyperscout_topology.topology import Adapter, Link, LinkTable, Topology

_WORDS_BYTES = 32_768  # zlib's window
_LEVEL = 6
_KEPT = ("nodes_without_evidence", "foreign_endpoints", "tiers")


class FrameError(Exception):
    """Stored data cannot be read. The message gives the reason."""


def packed_whole(topology: Topology) -> bytes:
    """Encode a whole topology."""
    head = topology_to_proto(topology, omit_links=True).SerializeToString()
    return len(head).to_bytes(4, "big") + zlib.compress(head + _columns(topology), _LEVEL)


def words(whole: bytes) -> bytes:
    """Returns the dictionary for the steps after a whole topology. Raises FrameError."""
    return _split(whole)[0][-_WORDS_BYTES:]


def packed_step(old: Topology, new: Topology, dictionary: bytes) -> bytes:
    """Encode the step from one generation to the next."""
    step = delta(old, new)
    before = [
        x.SerializeToString() for x in topology_to_proto(Topology(0, anomalies=old.anomalies)).anomalies
    ]
    after = [x.SerializeToString() for x in step.anomalies]
    was, now = set(before), set(after)
    if [x for x in before if x in now] != [x for x in after if x in was]:
        was, now = set(), set()  # the order changed: encode all of them
    put = [i for i, x in enumerate(after) if x not in was]
    header: dict[str, Any] = {
        "gone": [i for i, x in enumerate(before) if x not in now],
        "put": put,
        "same": [name for name in _KEPT if getattr(old, name) == getattr(new, name)],
    }
    came = [step.anomalies[i] for i in put]
    for name in ("anomalies", *header["same"]):
        step.ClearField(name)
    step.anomalies.extend(came)
    deflate = zlib.compressobj(_LEVEL, zdict=dictionary)
    text = json.dumps(header, separators=(",", ":")).encode()
    return deflate.compress(text + b"\n" + step.SerializeToString()) + deflate.flush()


def unpacked(whole: bytes, steps: Sequence[bytes]) -> Topology:
    """Returns the topology after the last step. Raises FrameError."""
    head, columns = _split(whole)
    dictionary = head[-_WORDS_BYTES:]
    try:
        picture = pb.Topology.FromString(head)
        kept = {name: list(getattr(picture, name)) for name in ("anomalies", *_KEPT)}
        deltas = [_taken(step, dictionary, kept) for step in steps]
        links, adapters = links_after(*_read_columns(columns), deltas)
        for step in deltas:
            for name in ("added_links", "removed_links", "added_adapters", "removed_adapters"):
                step.ClearField(name)
        for name, values in kept.items() if deltas else ():
            deltas[-1].ClearField(name)  # type: ignore[arg-type]
            getattr(deltas[-1], name).extend(values)
        return replace(folded(picture, deltas), links=links, adapters=adapters)
    except (zlib.error, DecodeError, ValueError, LookupError, TypeError) as error:
        raise FrameError(f"a step cannot be read: {error}") from error


def _taken(packed: bytes, dictionary: bytes, kept: dict[str, list[Any]]) -> pb.TopologyDelta:
    """Returns the step, and updates `kept` to the lists after it."""
    header, _, encoded = zlib.decompressobj(zdict=dictionary).decompress(packed).partition(b"\n")
    said, step = json.loads(header), pb.TopologyDelta.FromString(encoded)
    gone = set(said["gone"])
    anomalies = [x for i, x in enumerate(kept["anomalies"]) if i not in gone]
    for place, came in zip(said["put"], step.anomalies, strict=True):
        anomalies.insert(place, came)
    kept["anomalies"] = anomalies
    for name in _KEPT:
        if name not in said["same"]:
            kept[name] = list(getattr(step, name))
    return step


def links_after(
    table: LinkTable, adapters: Sequence[Adapter], deltas: Sequence[pb.TopologyDelta]
) -> tuple[LinkTable, Sequence[Adapter]]:
    """Returns the links and adapters after the steps."""
    gone, came = set[Link](), dict[Link, None]()
    left, more = set[Adapter](), dict[Adapter, None]()
    for step in deltas:
        for link in map(link_from_proto, step.removed_links):
            came.pop(link, None)
            gone.add(link)
        came.update(dict.fromkeys(map(link_from_proto, step.added_links)))
        for x in step.removed_adapters:
            more.pop(Adapter(x.id, x.node, x.name), None)
            left.add(Adapter(x.id, x.node, x.name))
        more.update(dict.fromkeys(Adapter(x.id, x.node, x.name) for x in step.added_adapters))
    if left or more:
        adapters = tuple(sorted((*(x for x in adapters if x not in left), *more)))
    if gone:
        ends = {link.a_device for link in gone}
        near = np.fromiter((device in ends for device in table.devices), np.bool_, len(table.devices))
        rows = [i for i in np.flatnonzero(near[table.a]).tolist() if table[i] in gone]
        table = without(table, rows)
    return extended(table, list(came)), adapters


# Links in columns: the length of a text, the text (JSON: names, notes), then the columns.

_COLUMNS = ("a", "a_port", "b", "b_port", "fabric", "sources")


def _columns(topology: Topology) -> bytes:
    table, adapters = table_of(topology.links), topology.adapters
    devices = {device: i for i, device in enumerate(table.devices)}
    nodes: dict[str, int] = {}
    names: dict[str, int] = {}
    whose = [
        (
            devices.setdefault(x.id, len(devices)),
            nodes.setdefault(x.node, len(nodes)),
            names.setdefault(x.name, len(names)),
        )
        for x in adapters
    ]
    tables = (list(devices), table.ports, table.fabrics, table.source_sets, list(nodes), list(names))
    text = json.dumps([len(table), len(whose), sorted(table.notes.items()), *map(list, tables)]).encode()
    columns = [getattr(table, name) for name in _COLUMNS] + list(np.array(whose, np.int32).reshape(-1, 3).T)
    return len(text).to_bytes(4, "big") + text + b"".join(x.astype("<i4").tobytes() for x in columns)


def _read_columns(encoded: bytes) -> tuple[LinkTable, tuple[Adapter, ...]]:
    start = 4 + int.from_bytes(encoded[:4], "big")
    links, adapters, notes, devices, ports, fabrics, sources, nodes, names = json.loads(encoded[4:start])
    numbers = np.frombuffer(encoded, "<i4", offset=start).astype(np.int32)
    columns = numbers[: links * len(_COLUMNS)].reshape(len(_COLUMNS), links)
    whose = numbers[links * len(_COLUMNS) :].reshape(3, adapters).tolist()
    named = dict(zip(_COLUMNS, columns, strict=True))
    table = LinkTable(devices, ports, fabrics, list(map(tuple, sources)), **named, notes=dict(notes))
    found = (Adapter(devices[i], nodes[n], names[m]) for i, n, m in zip(*whose, strict=True))
    return table, tuple(found)


def _split(whole: bytes) -> tuple[bytes, bytes]:
    """Returns the message and the columns."""
    try:
        raw = zlib.decompress(whole[4:])
    except zlib.error as error:
        raise FrameError(f"a picture cannot be read: {error}") from error
    at = int.from_bytes(whole[:4], "big")
    return raw[:at], raw[at:]

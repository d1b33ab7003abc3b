"""Encodes topologies for disk: a whole topology, and steps from each generation to the next.

A whole topology is two messages, each compressed with zlib: a `Topology` without links and adapters, then
these as `LinkColumns`, because a million links do not need a million objects. The first part is the
dictionary (zlib's `zdict`) of the steps after it, so a flapping link among a thousand nodes takes about 300
bytes. A step is a `TopologyDelta` without the unchanged lists. A line of JSON precedes it: `gone` and `put`
are the positions of anomalies that were removed (from the list before) and added (in the list after); `same`
names the unchanged lists.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from hyperscout.v1 import topology_pb2 as pb

from hyperscout_topology.diff import Diff
from hyperscout_topology.link_changes import table_of
from hyperscout_topology.memo import memoized
from hyperscout_topology.proto import apply, delta_to_proto, topology_from_proto, topology_to_proto
from hyperscout_topology.topology import Adapter, LinkTable, Rate, Topology

_DICTIONARY_BYTES = 32_768  # zlib's window
_LEVEL = 6
_COLUMNS_LEVEL = 3  # half the time of level 6, and 8 % larger
_LISTS = ("nodes_without_evidence", "foreign_endpoints", "tiers")


class FrameError(Exception):
    """Stored data cannot be read. The message gives the reason."""


def encoded_whole(topology: Topology) -> bytes:
    """Encode a whole topology."""
    table = table_of(topology.links)
    head = topology_to_proto(topology, omit_links=True).SerializeToString()
    # Two messages of one type, one after the other, are their fields together (Protocol Buffers, Encoding).
    columns = _encoded_names(table.devices, topology.adapters) + _rows_to_proto(table).SerializeToString()
    return zlib.compress(head, _LEVEL) + zlib.compress(columns, _COLUMNS_LEVEL)


def dictionary_of(whole: bytes) -> bytes:
    """Returns the dictionary for the steps after a whole topology. Raises FrameError."""
    return _head(whole)[0][-_DICTIONARY_BYTES:]


def encoded_step(diff: Diff, dictionary: bytes) -> bytes:
    """Encode the step from one generation to the next."""
    step, old, new = delta_to_proto(diff), diff.old, diff.new
    was, now = set(old.anomalies), set(new.anomalies)
    if [x for x in old.anomalies if x in now] != [x for x in new.anomalies if x in was]:
        was, now = set(), set()  # the order changed: encode all of them
    put = [i for i, x in enumerate(new.anomalies) if x not in was]
    same = [name for name in _LISTS if getattr(old, name) == getattr(new, name)]
    header = {"gone": [i for i, x in enumerate(old.anomalies) if x not in now], "put": put, "same": same}
    added = [step.anomalies[i] for i in put]
    for name in ("anomalies", *same):
        step.ClearField(name)  # type: ignore[arg-type]
    step.anomalies.extend(added)
    deflate = zlib.compressobj(_LEVEL, zdict=dictionary)
    text = json.dumps(header, separators=(",", ":")).encode()
    return deflate.compress(text + b"\n" + step.SerializeToString()) + deflate.flush()


def decoded(whole: bytes, steps: Sequence[bytes] = ()) -> Topology:
    """Returns the topology after the last step. Raises FrameError."""
    try:
        topology, lists, dictionary = _decoded_whole(whole)
        lists = dict(lists)
        deltas = [_decoded_step(step, dictionary, lists) for step in steps]
        for name, values in lists.items() if deltas else ():
            deltas[-1].ClearField(name)  # type: ignore[arg-type]
            getattr(deltas[-1], name).extend(values)
        return apply(topology, deltas)
    except (
        zlib.error,
        DecodeError,
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise FrameError(f"a stored generation cannot be decoded: {error}") from error


@lru_cache(maxsize=2)  # queries of one time decode it once: most of the work is its links
def _decoded_whole(whole: bytes) -> tuple[Topology, Mapping[str, list[Any]], bytes]:
    """Returns the topology, its lists as messages, and the dictionary of the steps after it."""
    head, rest = _split(whole)
    message = pb.Topology.FromString(head)
    links, adapters = _columns_of_0_1(rest) if _is_of_0_1(whole) else _columns_from_proto(rest)
    topology = replace(topology_from_proto(message), links=links, adapters=adapters)
    lists = {name: list(getattr(message, name)) for name in ("anomalies", *_LISTS)}
    return topology, lists, head[-_DICTIONARY_BYTES:]


def _decoded_step(encoded: bytes, dictionary: bytes, lists: dict[str, list[Any]]) -> pb.TopologyDelta:
    """Returns the step, and updates `lists` to those after it."""
    header, _, message = zlib.decompressobj(zdict=dictionary).decompress(encoded).partition(b"\n")
    fields, step = json.loads(header), pb.TopologyDelta.FromString(message)
    gone = set(fields["gone"])
    lists["anomalies"] = [x for i, x in enumerate(lists["anomalies"]) if i not in gone]
    for position, added in zip(fields["put"], step.anomalies, strict=True):
        lists["anomalies"].insert(position, added)
    lists.update((name, list(getattr(step, name))) for name in _LISTS if name not in fields["same"])
    return step


def _split(whole: bytes) -> tuple[bytes, bytes]:
    """Returns the two parts."""
    head, rest = _head(whole)
    return head, rest if _is_of_0_1(whole) else zlib.decompress(rest)


def _head(whole: bytes) -> tuple[bytes, bytes]:
    """Returns the first part, and the second as it is stored (version 0.1 compressed both together)."""
    try:
        if _is_of_0_1(whole):
            raw, length = zlib.decompress(whole[4:]), int.from_bytes(whole[:4], "big")
            return raw[:length], raw[length:]
        inflate = zlib.decompressobj()
        return inflate.decompress(whole), inflate.unused_data
    except zlib.error as error:
        raise FrameError(f"a stored topology cannot be decompressed: {error}") from error


@memoized  # the same in most generations
def _encoded_names(of_links: Sequence[str], adapters: Sequence[Adapter]) -> bytes:
    """Return the devices of links and all adapters, as encoded `LinkColumns`."""
    devices = {device: i for i, device in enumerate(of_links)}
    nodes, names = dict[str, int](), dict[str, int]()
    return pb.LinkColumns(
        adapter_id=[devices.setdefault(x.id, len(devices)) for x in adapters],
        adapter_node=[nodes.setdefault(x.node, len(nodes)) for x in adapters],
        adapter_name=[names.setdefault(x.name, len(names)) for x in adapters],
        devices=devices,
        nodes=nodes,
        adapter_names=names,
    ).SerializeToString()


def _rows_to_proto(table: LinkTable) -> pb.LinkColumns:
    """Return the links without their devices."""
    return pb.LinkColumns(
        ports=table.ports,
        fabrics=table.fabrics,
        source_sets=[pb.LinkColumns.SourceSet(sources=x) for x in table.source_sets],
        a=table.a.tolist(),
        a_port=table.a_port.tolist(),
        b=table.b.tolist(),
        b_port=table.b_port.tolist(),
        fabric=table.fabric.tolist(),
        source_set=table.sources.tolist(),
        rates=[pb.LinkColumns.Rate(speed_gbps=x.speed_gbps, width=x.width) for x in table.rates],
        rate=table.rate.tolist(),
        noted=table.notes.keys(),
        notes=table.notes.values(),
    )


def _columns_from_proto(encoded: bytes) -> tuple[LinkTable, tuple[Adapter, ...]]:
    read = pb.LinkColumns.FromString(encoded)
    known = read.rate if read.rates else [0] * len(read.a)
    rows = (read.a, read.a_port, read.b, read.b_port, read.fabric, read.source_set, known)
    a, a_port, b, b_port, fabric, sources, rate = (np.array(column, np.int32) for column in rows)
    devices, nodes, names = tuple(read.devices), tuple(read.nodes), tuple(read.adapter_names)
    ports, fabrics = tuple(read.ports), tuple(read.fabrics)
    source_sets = tuple(tuple(x.sources) for x in read.source_sets)
    rates = tuple(Rate(x.speed_gbps, x.width) for x in read.rates) or (Rate(),)
    notes = dict(zip(read.noted, read.notes, strict=True))
    lists = devices, ports, fabrics, source_sets, rates
    table = LinkTable(*lists, a, a_port, b, b_port, fabric, sources, rate, notes)
    owned = zip(read.adapter_id, read.adapter_node, read.adapter_name, strict=True)
    return table, tuple(Adapter(devices[i], nodes[n], names[m]) for i, n, m in owned)


# Reads whole topologies of version 0.1, which wrote links in columns. Steps have not changed since.


def _is_of_0_1(whole: bytes) -> bool:
    return whole[:1] != b"\x78"  # zlib's first byte (RFC 1950, 2.2)


def _columns_of_0_1(encoded: bytes) -> tuple[LinkTable, tuple[Adapter, ...]]:
    start = 4 + int.from_bytes(encoded[:4], "big")
    links, adapters, notes, devices, ports, fabrics, sources, nodes, names = json.loads(encoded[4:start])
    numbers = np.frombuffer(encoded, "<i4", offset=start).astype(np.int32)
    a, a_port, b, b_port, fabric, source = numbers[: 6 * links].reshape(6, links)
    lists = devices, ports, fabrics, list(map(tuple, sources)), (Rate(),)
    unknown = np.zeros(links, np.int32)
    table = LinkTable(*lists, a, a_port, b, b_port, fabric, source, unknown, dict(notes))
    owned = numbers[6 * links :].reshape(3, adapters).T.tolist()
    return table, tuple(Adapter(devices[i], nodes[n], names[m]) for i, n, m in owned)

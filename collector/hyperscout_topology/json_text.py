"""Writes a topology as JSON text in pieces, with one HyperNode, switch, link or anomaly per line.

The object is that of `json_objects.to_json`. Most of the text is links, so they are written from their
columns without an object for each.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hyperscout_topology.json_objects import to_json
from hyperscout_topology.topology import Link, LinkTable, Topology

_CHUNK = 4096  # rows


def topology_json(topology: Topology) -> Iterator[str]:
    """The JSON text in pieces. It ends with a newline and is ASCII only."""
    start = "{"
    for key, value in to_json(replace(topology, links=())).items():
        yield f"{start}{json.dumps(key)}: "
        start = ",\n"
        if key == "links":
            yield from _rows(_links(topology.links))
        elif isinstance(value, list):
            yield from _rows(map(json.dumps, value))
        else:
            yield json.dumps(value)
    yield "}\n"


def _rows(rows: Iterator[str] | Any) -> Iterator[str]:
    chunk: list[str] = []
    start = "[\n"
    for row in rows:
        chunk.append(row)
        if len(chunk) == _CHUNK:
            yield start + ",\n".join(chunk)
            start = ",\n"
            chunk.clear()
    if chunk:
        yield start + ",\n".join(chunk)
        start = "\n"
    yield "[]" if start == "[\n" else "\n]"


def _links(links: Sequence[Link]) -> Iterator[str]:
    table = links if isinstance(links, LinkTable) else LinkTable.of(links)
    devices, ports, fabrics, sources = (
        [json.dumps(x) for x in column]
        for column in (table.devices, table.ports, table.fabrics, table.source_sets)
    )
    columns = (table.a, table.a_port, table.b, table.b_port, table.fabric, table.sources)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for row, (a, ap, b, bp, f, s) in enumerate(rows):
        note = f', "note": {json.dumps(table.notes[row])}' if row in table.notes else ""
        yield (
            f'{{"a": {{"device": {devices[a]}, "port": {ports[ap]}}}, '
            f'"b": {{"device": {devices[b]}, "port": {ports[bp]}}}, '
            f'"fabric": {fabrics[f]}, "sources": {sources[s]}{note}}}'
        )

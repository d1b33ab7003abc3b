"""Input files of placements: a saved topology, free capacity, a whole request.

An invalid file ends with exit code 2, so that scripts can distinguish it from "there is no placement".
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hyperscout_cli.shared.errors import BadInputError
from hyperscout_cli.shared.files import SAVED_TOPOLOGY, read_bytes, read_json, shown
from hyperscout_cli.shared.output import note, warn
from hyperscout_cli.shared.writers import note_unnamed

if TYPE_CHECKING:
    from hyperscout.v1 import placement_pb2
    from hyperscout_placer.cluster.forest import Forest
    from hyperscout_placer.cluster.request import Request
    from hyperscout_topology.topology import Topology

Free = Mapping[str, int | Mapping[str, int]]  # by node: workers, or amounts by resource
Room = Mapping[str, Mapping[str, int]]  # amounts by node and resource
# The placer has the same values, but it imports NumPy, for which a help text would have to wait.
MAX_WORKERS = 1_000_000
_MAX_ERROR = 300  # characters of a parser's message
_WORKERS = "workers"


@dataclass(frozen=True, slots=True)
class Files:
    """The files that are read in place of a collector; None = not given."""

    topology: str | None
    capacity: str | None
    nodes: str | None


def read_forest(path: str, *, unnamed: bool) -> "tuple[Topology, Forest]":
    """A saved topology for the placer, with a note about hosts that only a GUID identifies (`unnamed`: they
    are nodes). Raises BadInputError that names the field or the HyperNode."""
    from hyperscout_placer.cluster.forest import Forest, ForestError
    from hyperscout_topology.gaps import named_only
    from hyperscout_topology.json_reader import TopologyError, from_json

    data = read_json(path)
    try:
        topology = from_json(data)
        if not unnamed:
            note_unnamed(topology)
            topology = named_only(topology)
        return topology, Forest.of(topology)
    except TopologyError as error:
        raise BadInputError(
            f"{shown(path)}: not a saved topology: {error}; expected {SAVED_TOPOLOGY}"
        ) from error
    except ForestError as error:
        raise BadInputError(f"{shown(path)}: hypernodes: {error}") from error


def read_request(path: str) -> "placement_pb2.PlaceRequest":
    """A PlaceRequest as JSON. Raises BadInputError that names the field."""
    from google.protobuf.json_format import Parse, ParseError
    from hyperscout.v1 import placement_pb2 as pb
    from hyperscout_placer.messages.json_errors import json_error

    text = _text(path, "a request, such as " + '{"parts": [{"workers": {"count": 4}}]}')
    try:
        return Parse(text, pb.PlaceRequest())
    except ParseError as error:
        raise BadInputError(f"{shown(path)}: not a request: {_short(json_error(error))}") from error


def read_capacity(path: str) -> Free:
    """`{"node": free workers}` or `{"node": {"resource": quantity}}`. Raises BadInputError."""
    from hyperscout_placer.cluster.numa_zones import is_zone_resource
    from hyperscout_placer.cluster.quantity import QuantityError, amount

    text = _text(path, 'free capacity, such as {"node-1": 2}')
    try:
        data = json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise BadInputError(f"{shown(path)}:{error.lineno}: not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # a number with thousands of digits; a duplicate key
        raise BadInputError(f"{shown(path)}: {_short(str(error))}") from error

    def of(where: str, value: Any) -> int | Mapping[str, int]:
        if isinstance(value, Mapping):
            if zone := next(filter(is_zone_resource, value), None):
                raise BadInputError(
                    f"{shown(path)}: {where}.{zone}: expected the name of a resource; a file has no zones"
                )
            try:
                return {name: amount(name, quantity(f"{where}.{name}", x)) for name, x in value.items()}
            except QuantityError as error:
                raise BadInputError(f"{shown(path)}: {where}: {error}") from error
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadInputError(
                f"{shown(path)}: {where}: expected free workers (a whole number) or quantities by resource, "
                f"found {_short(repr(value), 60)}"
            )
        if not 0 <= value <= MAX_WORKERS:
            raise BadInputError(f"{shown(path)}: {where}: {_int(value)}: expected 0 to {MAX_WORKERS} workers")
        return value

    def quantity(where: str, value: Any) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadInputError(f'{shown(path)}: {where}: expected a quantity such as 8 or "500m"')
        return _int(value) if isinstance(value, int) else repr(value)

    if not isinstance(data, Mapping):
        raise BadInputError(
            f'{shown(path)}: expected {{"node": free workers}}, found a {type(data).__name__}'
        )
    return {node: of(f"{node!r}", value) for node, value in data.items()}


def read_nodes(path: str) -> Mapping[str, dict[str, Any]]:
    """The stored form of each node of `kubectl get nodes -o json`. Raises BadInputError."""
    from hyperscout_formats.text.errors import FormatError
    from hyperscout_formats.text.node_labels import node_objects
    from hyperscout_kubernetes.nodes import kept

    try:
        nodes, problems = node_objects(read_bytes(path, "JSON"), shown(path))
    except FormatError as error:
        raise BadInputError(str(error)) from error
    warn(problems, "such item")
    return {name: kept(node) for name, node in nodes.items()}


def room_of(free: Free, request: "Request", forest: "Forest", path: str) -> Room:
    """Free amounts by node, from a file of --capacity. Free workers are those of the request, if
    all have the same resources."""
    from hyperscout_placer.cluster.request import ends

    kinds = {x.resources for x in ends(request.gang)}
    needs = next(iter(kinds)) if len(kinds) == 1 else ()
    outside = [node for node in free if node not in forest.index]
    warn(
        [f"{shown(path)}: {node!r} is in no HyperNode and is not used" for node in outside],
        "such node",
    )
    room: dict[str, Mapping[str, int]] = {}
    for node, value in free.items():
        if isinstance(value, int):
            room[node] = {_WORKERS: value, **{name: value * amount for name, amount in needs}}
        else:
            room[node] = value
    return room


def default_room(forest: "Forest", devices: Room, request: "Request", gpus: Mapping[str, int]) -> Room:
    """Free amounts without a file: one worker on every node, and the known devices.

    `gpus`: of each worker, by resource; {} = not given.
    """
    nodes, known = forest.nodes, {name for mine in devices.values() for name in mine}
    if gpus and not devices:
        note(
            "warning: the topology has no numbers of GPUs: one worker on each node is assumed "
            "(give --capacity; of NVLink, `infer --nvlink` reads them)"
        )
        return {node: {_WORKERS: 1, **gpus} for node in nodes}
    asked = [name for name in _asked(request) if name != _WORKERS]
    if known.intersection(asked):
        untold = [node for node in nodes if node not in devices]
        warn([f"no GPU is known of {node!r}: it is not used" for node in untold], "such node")
    untold = [name for name in asked if name not in known]
    warn(
        [f"the amount of {name!r} on nodes is unknown: give --capacity" for name in untold],
        "resource",
    )
    return {node: {_WORKERS: 1, **devices.get(node, {})} for node in nodes}


def _asked(request: "Request") -> Sequence[str]:
    from hyperscout_placer.cluster.request import ends

    return sorted({name for x in ends(request.gang) for name, amount in x.resources if amount})


def _text(path: str, what: str) -> str:
    try:
        return read_bytes(path, what).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInputError(f"{shown(path)}: not JSON: not UTF-8 at byte {error.start}") from error


def _once(pairs: "list[tuple[str, Any]]") -> "dict[str, Any]":
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r}: duplicate key: give it once")
    return found


def _int(value: int) -> str:
    return str(value) if abs(value) < 10**30 else "a number with too many digits"


def _short(words: str, most: int = _MAX_ERROR) -> str:
    return words if len(words) <= most else words[: most - 3] + "..."

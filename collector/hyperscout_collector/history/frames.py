"""Pictures of generations, packed: a whole one, then steps from each to the next.

A step is a `TopologyDelta` less what did not change, deflated with words of its whole one as a dictionary
(zlib's `zdict`): a flapping cable among a thousand nodes is some 300 bytes. What a step needs besides
stands before it as a line of JSON: `gone` and `put` are the places of anomalies that went (in the list
before) and came (in the list after), `same` names the lists that stayed.
"""

import json
import zlib
from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError
from hyperscout.v1 import topology_pb2 as pb

from hyperscout_collector.api.delta import delta
from hyperscout_collector.api.fold import folded
from hyperscout_collector.api.mapping import topology_to_proto
from hyperscout_collector.topology import Topology

_WORDS_BYTES = 32_768  # what zlib looks back
_LEVEL = 6
_KEPT = ("nodes_without_evidence", "foreign_endpoints", "tiers")


class FrameError(Exception):
    """What was stored cannot be read; says why."""


def packed_whole(topology: Topology) -> bytes:
    """All of it. Some seconds with a million links."""
    head = topology_to_proto(topology, omit_links=True).SerializeToString()
    links = topology_to_proto(Topology(0, adapters=topology.adapters, links=topology.links))
    # Parts of a message one after the other are the message (protobuf's encoding: fields are merged).
    return len(head).to_bytes(4, "big") + zlib.compress(head + links.SerializeToString(), _LEVEL)


def words(whole: bytes) -> bytes:
    """The dictionary for steps from this one on. Raises FrameError."""
    return _split(whole)[0][-_WORDS_BYTES:]


def packed_step(old: Topology, new: Topology, dictionary: bytes) -> bytes:
    """From one generation to the next."""
    step = delta(old, new)
    before = [
        x.SerializeToString() for x in topology_to_proto(Topology(0, anomalies=old.anomalies)).anomalies
    ]
    after = [x.SerializeToString() for x in step.anomalies]
    was, now = set(before), set(after)
    if [x for x in before if x in now] != [x for x in after if x in was]:
        was, now = set(), set()  # in another order: all of them anew
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
    """The generation after the last of the steps. Raises FrameError."""
    head, rest = _split(whole)
    dictionary = head[-_WORDS_BYTES:]
    try:
        picture = pb.Topology.FromString(head + rest)
        kept = {name: list(getattr(picture, name)) for name in ("anomalies", *_KEPT)}
        deltas = [_taken(step, dictionary, kept) for step in steps]
        if deltas:
            for name, values in kept.items():
                deltas[-1].ClearField(name)  # type: ignore[arg-type]
                getattr(deltas[-1], name).extend(values)
        return folded(picture, deltas)
    except (zlib.error, DecodeError, ValueError, LookupError, TypeError) as error:
        raise FrameError(f"a step cannot be read: {error}") from error


def _taken(packed: bytes, dictionary: bytes, kept: dict[str, list[Any]]) -> pb.TopologyDelta:
    """The step, and `kept` as it is after it."""
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


def _split(whole: bytes) -> tuple[bytes, bytes]:
    """Without links and adapters, and those."""
    try:
        raw = zlib.decompress(whole[4:])
    except zlib.error as error:
        raise FrameError(f"a picture cannot be read: {error}") from error
    at = int.from_bytes(whole[:4], "big")
    return raw[:at], raw[at:]

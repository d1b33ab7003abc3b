"""Requests for placements, and what is free after all."""

from collections.abc import Mapping
from typing import Any

from hyperscout.v1 import placement_pb2 as pb
from hyperscout_placer.book.placements import Placements
from hypothesis import strategies as st


def part(count: int, resources: Mapping[str, str] | None = None, role: str = "") -> pb.Part:
    return pb.Part(workers=pb.Workers(count=count, resources=resources or {}, role=role))


def group(count: int, *parts: pb.Part, **fields: Any) -> pb.Part:
    return pb.Part(group=pb.Group(count=count, parts=parts, **fields))


def request(count: int, *, resources: Mapping[str, str] | None = None, **fields: Any) -> pb.PlaceRequest:
    """So many workers of one kind."""
    return pb.PlaceRequest(parts=[part(count, resources)], **fields)


def free_of(placements: Placements) -> dict[str, dict[str, int]]:
    """What the placer takes for free, by node."""
    capacity = placements.capacity
    return {node: capacity.free_of(node) for node in capacity.forest.nodes}


# Any message that protobuf can carry, near those that mean something.

_TEXT = st.sampled_from(["", "1", "2", "0", "-1", "leaf", "core", "node", "n01", "leaf-a", "8", "500m", "x"])
_COUNT = st.sampled_from([1, 2, 3, 4, 64, 0, 1_000_000, 1_000_001, 2**32 - 1])
_SPREAD = st.none() | st.builds(pb.Spread, most=_COUNT, tier=_TEXT, preferred=st.booleans())
_WORKERS = st.builds(
    lambda **fields: pb.Part(workers=pb.Workers(**fields)),
    count=_COUNT,
    min_count=st.sampled_from([0, 0, 1, 3, 1_000_001]),
    resources=st.dictionaries(st.sampled_from(["", "cpu", "nvidia.com/gpu", "workers"]), _TEXT, max_size=3),
    role=_TEXT,
)
_PARTS = st.recursive(
    st.just(pb.Part()) | _WORKERS,
    lambda parts: st.builds(
        lambda **fields: pb.Part(group=pb.Group(**fields)),
        count=_COUNT,
        tier=_TEXT,
        parts=st.lists(parts, max_size=3),
        spread=_SPREAD,
    ),
    max_leaves=6,
)
_JUNK = st.builds(
    pb.PlaceRequest,
    gang=_TEXT,
    mode=st.sampled_from([0, 1, 2, 3, -1]),
    highest_tier_allowed=_TEXT,
    parts=st.lists(_PARTS, max_size=3),
    spread=_SPREAD,
    avoid=st.lists(_TEXT, max_size=3),
    use_down=st.booleans(),
)

_FEW = st.integers(1, 3)
_TIER = st.sampled_from(["", "", "1", "leaf", "2"])
_ENDS = st.builds(
    part,
    _FEW,
    st.sampled_from([{}, {}, {"nvidia.com/gpu": "4"}, {"workers": "1"}]),
    st.sampled_from(["", "x"]),
)
_GROUPS = st.builds(
    lambda count, parts, tier: group(count, *parts, tier=tier),
    _FEW,
    st.lists(_ENDS, min_size=1, max_size=2),
    _TIER,
)
_MEANT = st.builds(
    pb.PlaceRequest,
    gang=st.sampled_from("abc"),
    mode=st.sampled_from([0, 1, 2]),
    highest_tier_allowed=st.sampled_from(["", "", "core"]),
    parts=st.lists(_ENDS | _GROUPS, min_size=1, max_size=2),
    spread=st.none() | st.builds(pb.Spread, most=_FEW, tier=st.just("node"), preferred=st.booleans()),
    avoid=st.lists(st.sampled_from(["n01", "leaf-b"]), max_size=1),
)
REQUESTS = _MEANT | _JUNK

"""Topologies on disk: a whole one and steps give every generation back, also those that version 0.1 wrote."""

import zlib
from base64 import b64decode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

from hyperscout.v1 import topology_pb2 as pb
from hyperscout_topology.diff import Diff
from hyperscout_topology.frames import FrameError, decoded, dictionary_of, encoded_step, encoded_whole
from hyperscout_topology.topology import (
    Adapter,
    Anomaly,
    Endpoint,
    HyperNode,
    Link,
    LinkTable,
    Switch,
    Topology,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from support.any_topologies import TOPOLOGIES, same
from support.topologies import two_leaves

# A whole topology of version 0.1, and the step to the next generation.
WHOLE_0_1 = b64decode(
    "AAAAc3ic42AX0uBiy0lNTNM1FGCUYgGxjJjyDK2Yig29WMszi1KLAxnA4IO9FB8XUFQIqlqCUcuQizs0LzsvvzzPI7+4RIgDKG0pBMRa"
    "LDk5KQWGEH0P7K0Yc72gmoBGWwDFuqKNdBQMdRSio4GEUn5KilJsLJCnlGioBOQXQ0hLJbAYmGMJIoxBhBFENDMJTIMYeaklKZnFyfll"
    "qUUwOWQhoB6Qa6A25BlC1OTmVJjGGwAFQU5khLgUTIMwExQzM6ACRjQ+AM7hP8I="
)
STEP_0_1 = b64decode(
    "eLvCfBpEHc6xDoJADIDhoAOExMXRsaNhIG46+hqGXIRW7GBLrgUHwrt73vbnn74VRhWC26PtGphmT5XCnp//A1EkC1/2t84eaGEkGQga"
    "eGkkHiWQ4KQsbuk5UzTotrqq7m1dZl5xPZYZUlxOO+7hwL2QI9ugC0XItPNeEX+71CnN"
)


@settings(deadline=None)
@given(st.lists(TOPOLOGIES, min_size=1, max_size=6))
def test_steps_lead_from_one_topology_to_the_next(many: Sequence[Topology]) -> None:
    whole = encoded_whole(many[0])
    steps = [encoded_step(Diff(a, b), dictionary_of(whole)) for a, b in pairwise(many)]
    for i, expected in enumerate(many):
        assert same(decoded(whole, steps[:i])) == same(expected)


@given(st.binary(max_size=60))
def test_data_that_is_no_topology_gives_one_error(garbage: bytes) -> None:
    whole = encoded_whole(two_leaves())
    for frames in (
        (garbage, []),
        (whole, [garbage]),
        (whole[:4] + garbage, []),
        (WHOLE_0_1[:4] + garbage, []),
    ):
        with suppress(FrameError):
            decoded(*frames)


def test_what_has_no_speeds_is_read() -> None:
    """Collectors wrote links without them."""
    topology = two_leaves()
    inflate = zlib.decompressobj()
    head = inflate.decompress(encoded_whole(topology))
    columns = pb.LinkColumns.FromString(zlib.decompress(inflate.unused_data))
    assert columns.rate
    columns.ClearField("rates")
    columns.ClearField("rate")
    earlier = b"".join(zlib.compress(part) for part in (head, columns.SerializeToString()))
    links = [replace(x, speed_gbps=0.0, width=0) for x in topology.links]
    assert same(decoded(earlier)) == same(replace(topology, links=links))


def test_what_version_0_1_wrote_is_read() -> None:
    links = [
        Link("a1", "1", "s1", "3", "ib", ("ibnetdiscover",)),
        Link("s1", "9", "s9", "2", "ib", ("ibnetdiscover", "lldp"), "odd"),
    ]
    one = Topology(
        7,
        (HyperNode("leaf-1", 1, "leaf", None, (), ("n1",), ("s1",)),),
        (Switch("s1", "leaf-1", 1),),
        (Adapter("a1", "n1", "mlx5_0"),),
        LinkTable.of(links),
        (Anomaly("UnknownHost", Endpoint("s9", "s9"), None, None, ("lldp",), 0.5, "m", "leaf-1"),),
        ("n8",),
    )
    two = Topology(8, one.hypernodes, one.switches, one.adapters, links[:1], (), ("n8",))
    assert same(decoded(WHOLE_0_1)) == same(one)
    assert same(decoded(WHOLE_0_1, [STEP_0_1])) == same(two)
    further = encoded_step(Diff(two, one), dictionary_of(WHOLE_0_1))
    assert same(decoded(WHOLE_0_1, [STEP_0_1, further])) == same(one)

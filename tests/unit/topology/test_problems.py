"""The problems that `hyperscout status` lists: what is missing when there are no HyperNodes."""

from collections.abc import Mapping

import pytest
from hyperscout.v1.topology_pb2 import GetStatusResponse
from hyperscout_topology.problems import problems_of, why_no_hypernodes, why_no_sweeps
from hyperscout_topology.topology import Topology
from support.builders import hypernode

OFF = (
    "the probe ibnetdiscover is off there; in the Helm chart set agent.infiniband.resourceName, and "
    "agent.infiniband.nodeSelector so that it selects these nodes; without the chart set "
    "ibnetdiscover.enabled"
)
FAILURES = {"n3": "exit 1", "n2": "exit 255: no port"}
FAILED = (
    "the probe ibnetdiscover failed on 2 nodes, on n2: exit 255: no port; "
    "`hyperscout doctor n2` says what is missing"
)
COMMANDS = "`hyperscout doctor NODE` and `hyperscout get findings -o wide` say why"


@pytest.mark.parametrize(
    ("nodes", "outcomes", "words"),
    [
        (0, {}, "no node reports; `hyperscout doctor` on a node says why"),
        (
            3,
            {},
            (
                "3 nodes report no usable link: no findings of lldp, infiniband, ibnetdiscover, nvlink, "
                f"xgmi, ascend (off, or no such port or device); {COMMANDS}"
            ),
        ),
        (
            1,
            {"lldp": {"nothing": 1}, "infiniband": {"data": 1}, "nvlink": {"data": 1}},
            (
                "1 node reports, but no links of which a HyperNode can be made: "
                "infiniband has data on 1 node, lldp found nothing on 1 node, "
                "nvlink has data on 1 node, no findings of ibnetdiscover (off, or no such port or device); "
                f"{COMMANDS}"
            ),
        ),
        (
            3,
            {probe: {"nothing": 3} for probe in ("infiniband", "ibnetdiscover", "nvlink")}
            | {"lldp": {"nothing": 2, "failed": 1}, "snmp": {"failed": 1}, "switch": {"data": 2}},
            (
                "3 nodes report, but no links of which a HyperNode can be made: "
                "ibnetdiscover found nothing on 3 nodes, "
                "infiniband found nothing on 3 nodes, lldp failed on 1 node and found nothing on 2 nodes, "
                "nvlink found nothing on 3 nodes, snmp failed on 1 agent, switch has data on 2 agents; "
                f"{COMMANDS}"
            ),
        ),
    ],
)
def test_what_is_missing(nodes: int, outcomes: Mapping[str, Mapping[str, int]], words: str) -> None:
    assert why_no_hypernodes(nodes, outcomes) == f"no HyperNodes: {words}"


def test_the_lack_of_hypernodes_is_one_problem() -> None:
    why = why_no_hypernodes(3, {})
    empty, early, late = Topology(0), GetStatusResponse(), GetStatusResponse(problems=[why])
    assert problems_of(early, empty) == ["no HyperNodes yet"]
    assert problems_of(late, empty) == [f"collector: {why}"]
    assert problems_of(early, Topology(1, (hypernode("leaf", ("n1",)),))) == []


@pytest.mark.parametrize(
    ("nodes", "off", "failures", "words"),
    [
        (("n1",), ("n1",), {}, f"1 node (n1): {OFF}"),
        (("n1", "n2"), ("n1", "n2"), {}, f"2 nodes (n[1-2]): {OFF}"),
        (("n1", "n2", "n3"), (), FAILURES, f"3 nodes (n[1-3]): {FAILED}"),
        (
            ("n1", "n2", "n3", "n4"),
            ("n4",),
            FAILURES,
            f"4 nodes (n[1-4]): {FAILED}; and {OFF.replace('there', 'on 1 node (n4)')}",
        ),
    ],
)
def test_what_sweeps_need(
    nodes: tuple[str, ...], off: tuple[str, ...], failures: Mapping[str, str], words: str
) -> None:
    why = why_no_sweeps(nodes, off, failures)
    assert why == f"no InfiniBand sweeps: no agent sweeps from the active ports of {words}"

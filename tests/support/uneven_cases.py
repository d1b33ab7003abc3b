"""From a generated uneven fabric to what inference says about it, through the readers of the command."""

from collections.abc import Mapping
from pathlib import PurePosixPath

from hyperscout_cli.offline.tree_gaps import gaps
from hyperscout_formats.infiniband import ibnetdiscover, node_map
from hyperscout_formats.lldp import lldpctl
from hyperscout_formats.nvidia import nvidia_smi
from hyperscout_formats.snmp import rows as snmp_rows
from hyperscout_formats.snmp import switch as snmp_switch
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions, SweepSeen, SwitchTableSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.uneven.case import Uneven
from hyperscout_sim.uneven.files import Files, files_of, truth_of
from hyperscout_topology.topology import Topology

from support.judge import Verdict, judge


def inputs_of(files: Files) -> FabricInputs:
    """The inputs that the command makes of these files."""
    sweeps = files.get("--ibnetdiscover", {})
    hosts: dict[int, str] = {}
    for name, data in files.get("--node-map", {}).items():
        hosts |= node_map.parse(data, name)[0]
    return FabricInputs(
        sweeps=tuple(SweepSeen(ibnetdiscover.parse(data, name)) for name, data in sweeps.items()),
        lldp={node: lldpctl.parse(data, node)[0] for node, data in _by_node(files, "--lldp").items()},
        node_map=hosts,
        gpus={node: nvidia_smi.parse(data, node)[0] for node, data in _by_node(files, "--nvlink").items()},
        tables=tuple(
            SwitchTableSeen(snmp_switch.read(snmp_rows.parse(data, stem)[0], stem))
            for stem, data in _by_node(files, "--snmpwalk").items()
        ),
    )


def _by_node(files: Files, option: str) -> Mapping[str, bytes]:
    return {PurePosixPath(name).stem: data for name, data in sorted(files.get(option, {}).items())}


def inferred(case: Uneven) -> Topology:
    """Inference over the files of the case."""
    return infer(inputs_of(files_of(case)), InferOptions(), None)


def warnings_of(topology: Topology) -> list[str]:
    """The lines that `hyperscout infer` prints about a topology, other than anomalies."""
    return [gap.text for gap in gaps(topology, None, None)]


def judged(case: Uneven) -> tuple[Topology, Verdict]:
    """Infer a case in process and judge the result."""
    topology = inferred(case)
    return topology, judge(truth_of(case), topology, warnings_of(topology))


def mistakes(case: Uneven) -> list[str]:
    """What is wrong with the inference of a case, in words: for tests that expect nothing."""
    _, verdict = judged(case)
    return [
        *(f"tree: {text}" for text in verdict.tree),
        *(f"not named: {fault['what']} {fault['ends'][:2]}" for fault in verdict.unnamed),
        *(f"false: {a.kind} {a.confidence:g}: {a.message}" for a in verdict.false),
        *(f"silent about {host}" for host in sorted(verdict.silent)),
    ]

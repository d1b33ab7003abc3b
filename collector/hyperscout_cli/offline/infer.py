"""`hyperscout infer`: infers the hierarchy from saved files, without a cluster or a collector.

It imports only NumPy and pure packages, so that it starts fast.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

from hyperscout_cli.offline.memory import keep_freed_memory, permanent_objects
from hyperscout_cli.offline.stray_files import no_option
from hyperscout_cli.offline.tree_gaps import Gap, gaps, is_not_a_tree
from hyperscout_cli.offline.wanted_wiring import drifted
from hyperscout_cli.shared.command import SeveralCommand, files_option
from hyperscout_cli.shared.errors import NO, BadInputError
from hyperscout_cli.shared.files import node_name, read_bytes, shown
from hyperscout_cli.shared.options import output_option
from hyperscout_cli.shared.output import emit, note, warn
from hyperscout_cli.shared.saved_topology import read_topology
from hyperscout_cli.shared.writers import OUTPUTS, block_sizes_option, is_empty, unnamed_option, written

if TYPE_CHECKING:
    from hyperscout_formats.facts.facts import Gpu, LldpPort
    from hyperscout_formats.infiniband.ibnetdiscover import Sweep
    from hyperscout_formats.text.errors import Problem
    from hyperscout_formats.text.latency_csv import LatencyRow
    from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions, SweepSeen, SwitchTableSeen
    from hyperscout_inference.latency.pairs import PairTable
    from hyperscout_topology.topology import Topology

_Fact = TypeVar("_Fact")


@click.command(
    cls=SeveralCommand,
    short_help="Infer the hierarchy from files.",
    epilog="""\b
Examples:
  hyperscout infer --ibnetdiscover fabric.txt --node-map hosts.txt
  hyperscout infer --ibnetdiscover rail*.txt -o hypernodes | kubectl apply -f -
  hyperscout infer --lldp lldp/*.json -o slurm-tree > topology.conf
  hyperscout infer --ibnetdiscover fabric.txt -o dot | dot -Tsvg > fabric.svg
  hyperscout infer --snmpwalk walks/*.txt --lldp lldp/*.json
  hyperscout infer --nvlink smi/*.xml --ibnetdiscover fabric.txt
  hyperscout infer --latency table.csv
  ibnetdiscover | hyperscout infer --ibnetdiscover - --previous last.json -o json

\b
Exit codes: 0 ok, 1 failure, 2 wrong usage or input, 3 the result is empty, or (with --strict) the tree lacks
something.""",
    context_settings={"allow_extra_args": True},
)
@files_option("--ibnetdiscover", "Output of ibnetdiscover, one file for each fabric.")
@files_option("--lldp", "Output of `lldpctl -f json0`, one file for each node, named after the node.")
@files_option(
    "--snmpwalk", "`snmpwalk -On` of LLDP-MIB and IF-MIB, or a .snmprec recording; one file for each switch."
)
@files_option("--nvlink", "Output of `nvidia-smi -q -x`, one file for each node, named after the node.")
@files_option("--latency", "CSV of round trips: node_a,node_b,rtt_us[,samples]; any subset of pairs.")
@files_option("--ufm", "JSON of a UFM's /ufmRest/resources/ports, one file for each fabric.")
@files_option("--netq", "JSON of NetQ's topologygraph/fetch-topology, one file for each of its premises.")
@files_option("--nmx", "JSON of /nmx/v1/compute-nodes: NVLink domains of hosts without --nvlink.")
@files_option("--node-labels", "`kubectl get nodes -o json`: cloud labels, for nodes without known cables.")
@click.option(
    "--label-keys", multiple=True, metavar="KEY,KEY...", help="Cloud, or keys of labels, farthest first."
)
@click.option(
    "--node-map", metavar="FILE", type=click.Path(), help="Lines `[H-]<guid> <host>`, `[S-]<guid> <switch>`."
)
@click.option(
    "--nodes",
    metavar="FILE",
    type=click.Path(),
    help="The cluster's nodes, one per line (default: every host found). Does not change the grouping.",
)
@click.option(
    "--previous",
    metavar="FILE",
    type=click.Path(),
    help="An earlier `-o json` of infer or tree (no YAML); HyperNodes keep its names.",
)
@click.option(
    "--blueprint", metavar="FILE", type=click.Path(), help="The intended wiring; differences are reported."
)
@click.option(
    "--compute-ports",
    metavar="PATTERN",
    help="Ports of the compute fabric, by adapter or interface (a regular expression; default: inferred).",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Exit code 3 if a host is not in the tree, a tier is dropped, or the switches form no tree.",
)
@unnamed_option
@block_sizes_option
@output_option(words=OUTPUTS, default="tree")
def infer(
    *,
    unnamed: bool,
    block_sizes: tuple[int, ...],
    label_keys: Sequence[str],
    node_map: str | None,
    nodes: str | None,
    previous: str | None,
    blueprint: str | None,
    compute_ports: str | None,
    strict: bool,
    output: str,
    **by_kind: Sequence[str],
) -> int:
    """Infer the tiered hierarchy of network domains from files.

    Prints the hierarchy to stdout. Prints skipped lines, anomalies (missing links, miswired cables) and what
    the tree lacks (hosts, tiers, a single root) to stderr. `-` reads a file from stdin; gzip files are
    unpacked.
    """
    evidence = _Files(**by_kind)
    files = [f for some in (*evidence, (node_map, nodes, previous, blueprint)) for f in some if f]
    if stray := click.get_current_context().args:
        raise no_option(stray[0], OF_EVIDENCE)
    if not any(evidence):
        raise click.UsageError(f"give a file of evidence: at least one of {', '.join(OF_EVIDENCE)}")
    if label_keys and not evidence.node_labels:
        raise click.UsageError("--label-keys: give --node-labels, the file of the nodes, too")
    if files.count("-") > 1:
        raise click.UsageError("stdin (-) can be read only once: save one of them to a file")
    keep_freed_memory()
    with permanent_objects():
        options = _options(nodes, compute_ports)
        former = None if previous is None else read_topology(previous)
        topology, is_incomplete = _infer(evidence, label_keys, node_map, options, former)
        if blueprint is not None:
            topology = drifted(topology, blueprint)
        only_labels = not any(evidence._replace(node_labels=()))
        lacking = gaps(topology, former, options.cluster_nodes, only_labels=only_labels)
        _diagnose(topology, lacking, output)
        emit(written(topology, output, unnamed=unnamed, block_sizes=block_sizes))
    lacks = strict and (is_incomplete or any(gap.strict for gap in lacking) or is_not_a_tree(topology))
    empty = is_empty(topology, output, unnamed=unnamed)
    if empty and topology.hypernodes:
        note("warning: the output is empty: no host has a name that Slurm accepts: give --node-map")
    return NO if lacks or empty else 0


class _Files(NamedTuple):
    """What is read, by kind. Each field is an option."""

    ibnetdiscover: Sequence[str]
    lldp: Sequence[str]
    snmpwalk: Sequence[str]
    nvlink: Sequence[str]
    latency: Sequence[str]
    ufm: Sequence[str]
    netq: Sequence[str]
    nmx: Sequence[str]
    node_labels: Sequence[str]


OF_EVIDENCE = tuple("--" + name.replace("_", "-") for name in _Files._fields)


def _options(nodes: str | None, compute_ports: str | None) -> "InferOptions":
    from hyperscout_inference.fabric.inputs import InferOptions

    if compute_ports is not None:
        try:
            re.compile(compute_ports)
        except re.error as error:
            raise click.UsageError(
                f"--compute-ports {compute_ports!r}: no regular expression such as mlx5_.*: {error}"
            ) from error
    return InferOptions(None if nodes is None else _cluster(nodes), compute_ports)


def _infer(
    files: _Files,
    label_keys: Sequence[str],
    node_map: str | None,
    options: "InferOptions",
    previous: "Topology | None",
) -> "tuple[Topology, bool]":
    """Return the topology, and whether a sweep lacks devices that it names."""
    from hyperscout_formats.text.errors import FormatError
    from hyperscout_inference.fabric.inputs import FabricInputs
    from hyperscout_inference.hierarchy import infer as infer_hierarchy

    from hyperscout_cli.offline.labels_of_nodes import with_labels

    try:
        problems: list[Problem] = []
        inputs = FabricInputs(
            sweeps=tuple(_sweep(path, problems) for path in files.ibnetdiscover),
            lldp=_lldp(files.lldp, problems),
            gpus=_gpus(files.nvlink, problems),
            tables=_tables(files.snmpwalk, problems),
        )
        if files.latency:
            inputs = replace(inputs, pairs=_pairs(files.latency, problems))
        for paths, add in (
            (files.ufm, _with_ufm),
            (files.netq, _with_netq),
            (files.nmx, _with_nmx),
            (files.node_labels, partial(with_labels, label_keys)),
        ):
            for path in paths:
                inputs = add(inputs, path, problems)
        if node_map is not None:
            inputs = _with_node_map(inputs, node_map, problems)
    except FormatError as error:
        raise BadInputError(str(error)) from error
    warn(problems, "problem", " in the files")
    found = infer_hierarchy(inputs, options, previous=previous)
    if inputs.gpus:
        found = replace(found, devices=_devices(inputs.gpus, options.cluster_nodes))
    return found, not all(seen.sweep.declared.all() for seen in inputs.sweeps)


def _devices(gpus: "Mapping[str, Sequence[Gpu]]", nodes: frozenset[str] | None) -> dict[str, dict[str, int]]:
    """Resources of each node, for `place`."""
    from hyperscout_placer.cluster.devices import devices_of

    return {node: devices_of(mine) for node, mine in sorted(gpus.items()) if nodes is None or node in nodes}


def _sweep(path: str, problems: "list[Problem]") -> "SweepSeen":
    from hyperscout_formats.infiniband.ibnetdiscover import parse
    from hyperscout_inference.fabric.inputs import SweepSeen

    sweep = parse(read_bytes(path, "the output of `ibnetdiscover`"), shown(path))
    if problem := _missing_blocks(sweep):
        problems.append(problem)
    problems.extend(sweep.problems)
    return SweepSeen(sweep)


def _missing_blocks(sweep: "Sweep") -> "Problem | None":
    """Devices that are only the other end of a cable: ibnetdiscover prints a block for every device."""
    from hyperscout_formats.text.counts import count
    from hyperscout_formats.text.errors import Problem

    if sweep.declared.all():
        return None
    missing = (~sweep.declared).nonzero()[0].tolist()
    first = f'{sweep.guid[missing[0]]:016x} ("{sweep.descriptions[missing[0]][:64]}")'
    text = f"no block of {count(len(missing), 'device')} that port lines name, such as {first}"
    return Problem(sweep.source, 0, f"{text}: the dump is incomplete; run ibnetdiscover again")


def _lldp(paths: Sequence[str], problems: "list[Problem]") -> "Mapping[str, tuple[LldpPort, ...]]":
    if not paths:
        return {}
    from hyperscout_formats.lldp.lldpctl import parse

    return _by_node(paths, "the output of `lldpctl -f json0`", parse, problems)


def _tables(paths: Sequence[str], problems: "list[Problem]") -> "tuple[SwitchTableSeen, ...]":
    if not paths:
        return ()
    from hyperscout_formats.snmp.rows import parse
    from hyperscout_formats.snmp.switch import read
    from hyperscout_formats.text.errors import Problem
    from hyperscout_inference.fabric.inputs import SwitchTableSeen

    found: list[SwitchTableSeen] = []
    stems: set[str] = set()
    for path in paths:
        stem = node_name(path)
        if stem in stems:
            raise BadInputError(f"{shown(path)}: a second file named {stem!r}: give one for each switch")
        stems.add(stem)
        rows, passed_over = parse(read_bytes(path, "the output of `snmpwalk -On`"), shown(path))
        table = read(rows, stem)
        problems.extend(passed_over)
        problems.extend(Problem(shown(path), 0, text) for text in table.problems)
        found.append(SwitchTableSeen(table))
    return tuple(found)


def _gpus(paths: Sequence[str], problems: "list[Problem]") -> "Mapping[str, tuple[Gpu, ...]]":
    if not paths:
        return {}
    from hyperscout_formats.nvidia.nvidia_smi import parse

    return _by_node(paths, "the output of `nvidia-smi -q -x`", parse, problems)


def _by_node(
    paths: Sequence[str],
    what: str,
    parse: "Callable[[bytes, str], tuple[tuple[_Fact, ...], Sequence[Problem]]]",
    problems: "list[Problem]",
) -> "Mapping[str, tuple[_Fact, ...]]":
    """Facts by node; the name of a file is that of its node."""
    found: dict[str, tuple[_Fact, ...]] = {}
    for path in paths:
        node = node_name(path)
        if node in found:
            raise BadInputError(f"{shown(path)}: a second file for node {node!r}: give one for each node")
        found[node], passed_over = parse(read_bytes(path, what), shown(path))
        problems.extend(passed_over)
    return found


def _pairs(paths: Sequence[str], problems: "list[Problem]") -> "PairTable":
    from hyperscout_formats.text.latency_csv import parse
    from hyperscout_inference.latency.pairs import pairs_of_rows

    rows: list[LatencyRow] = []
    for path in paths:
        found, passed_over = parse(read_bytes(path, "CSV of node_a,node_b,rtt_us"), shown(path))
        rows.extend(found)
        problems.extend(passed_over)
    return pairs_of_rows(rows)


def _with_ufm(inputs: "FabricInputs", path: str, problems: "list[Problem]") -> "FabricInputs":
    from hyperscout_formats.infiniband import ibnetdiscover
    from hyperscout_formats.managers import ufm
    from hyperscout_inference.fabric.inputs import SweepSeen

    fabric = ufm.parse(read_bytes(path, "JSON"), shown(path))
    problems.extend(fabric.problems)
    sweep = ibnetdiscover.parse(fabric.text, shown(path))
    problems.extend(sweep.problems)
    return replace(inputs, sweeps=(*inputs.sweeps, SweepSeen(sweep, "ufm")))


def _with_netq(inputs: "FabricInputs", path: str, problems: "list[Problem]") -> "FabricInputs":
    from hyperscout_formats.managers import netq
    from hyperscout_inference.fabric.inputs import SwitchTableSeen

    graph = netq.parse(read_bytes(path, "JSON"), shown(path))
    problems.extend(graph.problems)
    tables = (SwitchTableSeen(table, "netq") for table in graph.tables.values() if table.ports)
    return replace(inputs, tables=(*inputs.tables, *tables))


def _with_nmx(inputs: "FabricInputs", path: str, problems: "list[Problem]") -> "FabricInputs":
    from hyperscout_formats.managers import nmx

    found = nmx.parse(read_bytes(path, "JSON"), shown(path))
    problems.extend(found.problems)
    return replace(inputs, managed_gpus={**found.gpus, **inputs.managed_gpus})


def _with_node_map(inputs: "FabricInputs", path: str, problems: "list[Problem]") -> "FabricInputs":
    from hyperscout_formats.infiniband.node_map import parse
    from hyperscout_formats.text.counts import count
    from hyperscout_formats.text.errors import Problem

    names, passed_over = parse(read_bytes(path), shown(path))
    problems.extend(passed_over)
    if not names:
        problems.append(Problem(shown(path), 0, "no line: expected `<guid> <host>`"))
    swept = {guid for seen in inputs.sweeps for guid in seen.sweep.guid.tolist()}
    if inputs.sweeps and (unknown := sorted(names.keys() - swept)):
        text = f"{count(len(unknown), 'GUID')} of no device of the fabric, such as {unknown[0]:016x}"
        hint = ": expected GUIDs of devices as the fabric shows them" if len(unknown) == len(names) else ""
        problems.append(Problem(shown(path), 0, f"{text} ({names[unknown[0]]}){hint}"))
    return replace(inputs, node_map=names)


def _cluster(path: str) -> frozenset[str]:
    from hyperscout_formats.text.errors import FormatError
    from hyperscout_formats.text.node_list import parse

    try:
        names = parse(read_bytes(path), shown(path))
    except FormatError as error:
        raise BadInputError(str(error)) from error
    if not names:
        raise BadInputError(f"{shown(path)}: no node: expected one name per line (or leave --nodes out)")
    return frozenset(names)


def _diagnose(topology: "Topology", lacking: Sequence[Gap], output: str) -> None:
    from hyperscout_formats.text.host_list import natural_key

    by_kind: dict[str, list[str]] = {}
    for x in topology.anomalies:
        by_kind.setdefault(x.kind, []).append(f"{x.kind}: {x.message} (confidence {x.confidence:.2g})")
    for kind, texts in by_kind.items():
        ordered = sorted(texts, key=natural_key)
        warn(ordered, f"{kind} anomaly", ": see -o json")
    for gap in lacking:
        note(f"warning: {gap.text}")
    if output == "hypernodes":
        from hyperscout_publish.hypernodes.wanted import unpublishable

        warn(
            [f"{n!r} is left out: not a valid name of a Kubernetes node" for n in unpublishable(topology)],
            "host",
            " left out: give --node-map",
        )

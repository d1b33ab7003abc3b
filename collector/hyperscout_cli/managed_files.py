"""What `infer` reads of managers and of a cluster's nodes: saved answers in, evidence out."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from hyperscout_cli.errors import CliError
from hyperscout_cli.files import read_bytes, shown

if TYPE_CHECKING:
    from hyperscout_collector.fabric.inputs import FabricInputs
    from hyperscout_formats.errors import Problem


class ManagedFiles(NamedTuple):
    """Files by kind."""

    ufm: Sequence[str]
    netq: Sequence[str]
    nmx: Sequence[str]
    node_labels: Sequence[str]


def with_managed_files(
    inputs: "FabricInputs", files: ManagedFiles, problems: "list[Problem]"
) -> "FabricInputs":
    """Raises FormatError and CliError."""
    for path in files.ufm:
        inputs = _with_ufm(inputs, path, problems)
    for path in files.netq:
        inputs = _with_netq(inputs, path, problems)
    for path in files.nmx:
        inputs = _with_nmx(inputs, path, problems)
    for path in files.node_labels:
        inputs = _with_labels(inputs, path, problems)
    return inputs


def _with_ufm(inputs: "FabricInputs", path: str, problems: "list[Problem]") -> "FabricInputs":
    from hyperscout_collector.fabric.inputs import SweepSeen
    from hyperscout_formats import ibnetdiscover, ufm

    fabric = ufm.parse(_content(path), shown(path))
    problems.extend(fabric.problems)
    sweep = ibnetdiscover.parse(fabric.text, shown(path))
    problems.extend(sweep.problems)
    return replace(inputs, sweeps=(*inputs.sweeps, SweepSeen(sweep, "ufm")))


def _with_netq(inputs: "FabricInputs", path: str, problems: "list[Problem]") -> "FabricInputs":
    from hyperscout_collector.fabric.inputs import SwitchTableSeen
    from hyperscout_formats import netq

    graph = netq.parse(_content(path), shown(path))
    problems.extend(graph.problems)
    tables = (SwitchTableSeen(table, "netq") for table in graph.tables.values() if table.ports)
    return replace(inputs, tables=(*inputs.tables, *tables))


def _with_nmx(inputs: "FabricInputs", path: str, problems: "list[Problem]") -> "FabricInputs":
    from hyperscout_formats import nmx

    found = nmx.parse(_content(path), shown(path))
    problems.extend(found.problems)
    return replace(inputs, managed_gpus={**found.gpus, **inputs.managed_gpus})


def _with_labels(inputs: "FabricInputs", path: str, problems: "list[Problem]") -> "FabricInputs":
    """By the lists of all clouds that are known."""
    from hyperscout_collector.cloud_labels import CLOUDS, domains_of
    from hyperscout_formats import node_labels

    nodes, passed_over = node_labels.parse(_content(path), shown(path))
    problems.extend(passed_over)
    return replace(inputs, labels={**domains_of(nodes, list(CLOUDS.values())), **inputs.labels})


def _content(path: str) -> bytes:
    data = read_bytes(path)
    if not data.strip():
        raise CliError(f"{shown(path)}: empty")
    return data

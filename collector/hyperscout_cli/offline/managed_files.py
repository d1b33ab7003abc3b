"""What `infer` reads of managers and of a cluster's nodes: saved answers in, evidence out."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.shared.files import read_bytes, shown

if TYPE_CHECKING:
    from hyperscout_formats.text.errors import Problem
    from hyperscout_inference.fabric.inputs import FabricInputs


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
    from hyperscout_formats.infiniband import ibnetdiscover
    from hyperscout_formats.managers import ufm
    from hyperscout_inference.fabric.inputs import SweepSeen

    fabric = ufm.parse(_content(path), shown(path))
    problems.extend(fabric.problems)
    sweep = ibnetdiscover.parse(fabric.text, shown(path))
    problems.extend(sweep.problems)
    return replace(inputs, sweeps=(*inputs.sweeps, SweepSeen(sweep, "ufm")))


def _with_netq(inputs: "FabricInputs", path: str, problems: "list[Problem]") -> "FabricInputs":
    from hyperscout_formats.managers import netq
    from hyperscout_inference.fabric.inputs import SwitchTableSeen

    graph = netq.parse(_content(path), shown(path))
    problems.extend(graph.problems)
    tables = (SwitchTableSeen(table, "netq") for table in graph.tables.values() if table.ports)
    return replace(inputs, tables=(*inputs.tables, *tables))


def _with_nmx(inputs: "FabricInputs", path: str, problems: "list[Problem]") -> "FabricInputs":
    from hyperscout_formats.managers import nmx

    found = nmx.parse(_content(path), shown(path))
    problems.extend(found.problems)
    return replace(inputs, managed_gpus={**found.gpus, **inputs.managed_gpus})


def _with_labels(inputs: "FabricInputs", path: str, problems: "list[Problem]") -> "FabricInputs":
    """By the lists of all clouds that are known."""
    from hyperscout_formats.text import node_labels
    from hyperscout_inference.labels.cloud_labels import CLOUDS, domains_of

    nodes, passed_over = node_labels.parse(_content(path), shown(path))
    problems.extend(passed_over)
    return replace(inputs, labels={**domains_of(nodes, list(CLOUDS.values())), **inputs.labels})


def _content(path: str) -> bytes:
    data = read_bytes(path)
    if not data.strip():
        raise CliError(f"{shown(path)}: empty")
    return data

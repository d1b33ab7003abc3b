"""`hyperscout diff`: compares generations, saved topologies, hand-written HyperNodes or a blueprint."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from hyperscout_formats.text.host_list import fold
from hyperscout_topology.names import visible

from hyperscout_cli.remote.cluster import hypernodes_and_labels, kubeconfig_option
from hyperscout_cli.remote.source import load
from hyperscout_cli.shared.command import Command
from hyperscout_cli.shared.errors import NO
from hyperscout_cli.shared.options import Endpoint, output_option, topology_options
from hyperscout_cli.shared.output import emit, emit_data, note
from hyperscout_cli.shared.times import time_option
from hyperscout_cli.show.differences import difference

if TYPE_CHECKING:
    from hyperscout.v1.topology_pb2 import HistoryEvent
    from hyperscout_topology.topology import Topology

CLUSTER = "cluster"
_EQUAL = "nothing differs"


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  hyperscout diff                              what a held generation would remove
  hyperscout diff --since 2h                   what is other than it was two hours ago
  hyperscout diff yesterday.json               a saved topology and the published one
  hyperscout diff yesterday.json today.json    two saved ones
  hyperscout diff --hypernodes mine.yaml       where hand-written HyperNodes and the wires differ
  hyperscout diff --hypernodes mine.yaml --topology today.json
  hyperscout diff --hypernodes cluster         the same for what a cluster has
  hyperscout diff --blueprint plan.yaml        where the wires differ from how they should be
  hyperscout diff --blueprint plan.yaml --accept

\b
Exit codes: 0 no difference, 3 there are differences.""",
)
@click.argument("files", metavar="[A.json [B.json]]", nargs=-1, type=click.Path())
@click.option(
    "--hypernodes",
    metavar="FILE|cluster",
    type=click.Path(),
    help="HyperNode YAML, as `kubectl get -o yaml`; or those in the cluster that are not ours.",
)
@click.option(
    "--blueprint", metavar="FILE", type=click.Path(), help="The intended wiring (docs/blueprints.md)."
)
@click.option(
    "--accept",
    is_flag=True,
    help="Write the present wiring to FILE as the blueprint; replaces an existing file.",
)
@time_option("--since", "Compare the published topology with that of this time")
@output_option()
@kubeconfig_option
@topology_options
def diff(
    *,
    files: Sequence[str],
    hypernodes: str | None,
    blueprint: str | None,
    accept: bool,
    since_ns: int | None,
    output: str,
    kubeconfig: Path | None,
    topology: str | None,
    collector: Endpoint,
) -> int:
    """Show what differs. Save a topology with `hyperscout tree -o json` or `infer -o json`."""
    if len(files) > 2 or ((hypernodes or blueprint) and files) or (topology and len(files) == 2):
        raise click.UsageError("give at most two saved topologies, or --hypernodes or --blueprint, not both")
    if accept and (blueprint is None or blueprint == "-"):
        raise click.UsageError("--accept writes the blueprint: name its file with --blueprint")
    if since_ns is not None:
        if files or hypernodes or blueprint or topology:
            raise click.UsageError("--since compares what a collector published: give nothing else with it")
        return _since(since_ns, output, collector)
    if blueprint is not None:
        if hypernodes is not None:
            raise click.UsageError("--hypernodes and --blueprint: give one of them")
        found = _drift(blueprint, load(topology=topology, collector=collector), accept=accept)
        _show(found, output, "" if accept else _EQUAL)
        return NO if found and not accept else 0
    without = _EQUAL
    if hypernodes is not None:
        found = _written(hypernodes, kubeconfig, topology, collector)
    elif files:
        from hyperscout_cli.shared.saved_topology import read_topology
        from hyperscout_cli.show.differences import differences

        before = read_topology(files[0])
        other = files[1] if len(files) == 2 else topology
        found = list(differences(before, load(topology=other, collector=collector)))
    elif topology is not None:
        raise click.UsageError("--topology needs another one to compare with: a file or --hypernodes")
    else:
        found, without = list(_held(collector)), "no generation is held"
    _show(found, output, without)
    return NO if found else 0


def _since(since_ns: int, output: str, collector: Endpoint) -> int:
    from hyperscout_topology.objects import plain

    from hyperscout_cli.remote.client import Collector
    from hyperscout_cli.show.history import asked, reach
    from hyperscout_cli.show.history_text import difference_line

    events: list[HistoryEvent] = []
    with Collector(collector) as connection:
        for page in connection.history(asked(since_ns=since_ns, net=True)):
            if not events:
                reach(page, since_ns)
            events += page.events
    lines = [difference_line(event) for event in events]
    found = [difference(line) | {"event": plain(event)} for line, event in zip(lines, events, strict=True)]
    if not emit_data({"differences": found}, output):
        emit(visible(line) + "\n" for line in lines)
        if not lines:
            note(_EQUAL)
    return NO if events else 0


def _show(lines: Sequence[str], output: str, without: str) -> None:
    """Write the lines; `without`: a note where there is none."""
    if emit_data({"differences": [difference(line) for line in lines]}, output):
        return
    emit(visible(line) + "\n" for line in lines)
    if not lines and without:
        note(without)


def _written(path: str, kubeconfig: Path | None, topology: str | None, collector: Endpoint) -> list[str]:
    from hyperscout_publish.hypernodes.overlap import overlaps

    from hyperscout_cli.offline.handwritten import disagreements, expand, in_cluster, problems, read

    found: list[dict[str, Any]] = []
    labels: dict[str, dict[str, str]] = {}
    if path == CLUSTER and not Path(path).exists():
        found, labels = hypernodes_and_labels(kubeconfig)
        written = in_cluster(found, labels)
        if not written:
            note("the cluster has no HyperNode that is not ours")
            return []
    else:
        written = read(path)
    loaded = load(topology=topology, collector=collector, links=False)
    overlapping = overlaps(loaded.hypernodes, found, labels).anomalies
    return [
        *problems(written),
        *(f"{x.hypernode}: {x.message.partition(': ')[0]}" for x in overlapping),
        *disagreements(expand(written, loaded), loaded),
    ]


def _drift(path: str, topology: "Topology", *, accept: bool) -> list[str]:
    from hyperscout_cli.offline import wanted_wiring

    if accept:
        return wanted_wiring.accept(topology, path)
    found = wanted_wiring.compared(topology, wanted_wiring.read_blueprint(path))
    return list(wanted_wiring.drift_lines(found))


def _held(collector: Endpoint) -> Iterator[str]:
    from hyperscout_cli.remote.client import Collector

    with Collector(collector) as connection:
        status = connection.status()
    if not status.HasField("held"):
        return
    held = status.held
    applies = (
        f", applied on its own at {held.applies_at.ToJsonString()}" if held.HasField("applies_at") else ""
    )
    yield f"generation {held.generation} is held since {held.since.ToJsonString()}: {held.reason}{applies}"
    yield from (f"- hypernode {name}" for name in held.removes_hypernodes)
    if held.removes_nodes:
        yield f"- nodes {fold(held.removes_nodes)}"

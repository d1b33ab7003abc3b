"""`hyperscout measure`: shows, pauses and resumes measurements between nodes, and runs NCCL."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from hyperscout_formats.text.counts import count
from hyperscout_topology import objects

from hyperscout_cli.shared.command import Group
from hyperscout_cli.shared.options import Endpoint, collector_options, output_option
from hyperscout_cli.shared.output import emit, emit_data
from hyperscout_cli.shared.tables import age, facts
from hyperscout_cli.show.measure_nccl import nccl

if TYPE_CHECKING:
    from hyperscout.v1.measurement_pb2 import GetMeasuringResponse


@click.group(
    cls=Group,
    epilog="""\b
Examples:
  hyperscout measure status
  hyperscout measure pause --reason "acceptance test of row 7"
  hyperscout measure resume
  hyperscout measure nccl gpu-01 gpu-77""",
)
def measure() -> None:
    """Show, pause or resume measurements between nodes; run NCCL."""


measure.add_command(nccl)


@measure.command(
    epilog="""\b
Examples:
  hyperscout measure status
  hyperscout measure status -o json"""
)
@output_option()
@collector_options
def status(*, output: str, collector: Endpoint) -> None:
    """Show whether agents measure latency, at which rate, and the results."""
    from hyperscout_cli.remote.client import Collector

    with Collector(collector) as connection:
        current = connection.measuring()
    if not emit_data(objects.plain(current), output):
        emit(report(current, time.time_ns()))


@measure.command(
    epilog="""\b
Examples:
  hyperscout measure pause
  hyperscout measure pause --reason "acceptance test of row 7\""""
)
@click.option("--reason", metavar="TEXT", default="", help="Reason, which `measure status` shows.")
@output_option()
@collector_options
def pause(*, reason: str, output: str, collector: Endpoint) -> None:
    """Pause measuring: running bursts end within a second, and no new ones start until it is resumed.

    A restart of the collector or a take-over by another replica resumes measuring. To switch it off
    permanently, set `measure: false`.
    """
    from hyperscout_cli.remote.client import Collector

    with Collector(collector) as connection:
        connection.set_measuring(paused=True, reason=reason)
    if not emit_data({"paused": True, "reason": reason}, output):
        emit(["measuring is paused\n"])


@measure.command(epilog="\b\nExamples:\n  hyperscout measure resume")
@output_option()
@collector_options
def resume(*, output: str, collector: Endpoint) -> None:
    """Resume measuring."""
    from hyperscout_cli.remote.client import Collector

    with Collector(collector) as connection:
        connection.set_measuring(paused=False)
    if not emit_data({"paused": False}, output):
        emit(["measuring is resumed\n"])


def report(current: "GetMeasuringResponse", now_ns: int) -> Iterator[str]:
    """The state of measuring as text."""
    since = age(current.since.ToNanoseconds(), now_ns)
    values = {
        "State": current.state + (f", for {since}" if since else ""),
        "Reason": current.reason,
        "Agents": f"{current.agents} can take part",
        "Probes": f"{current.probes}, {current.probes_per_s:.1f}/s of at most {current.max_probes_per_s:g}/s",
        "In flight": str(current.in_flight),
        "Pairs": f"{current.pairs} confirmed by both ends",
        "Dropped": f"{count(current.disagreeing, 'pair')}: both ends disagree" if current.disagreeing else "",
        "Failed": str(current.failed),
    }
    return facts(values, 12)

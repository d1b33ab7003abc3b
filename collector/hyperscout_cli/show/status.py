"""`hyperscout status`: is the picture whole, and is the fabric well?"""

import shutil
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click
from hyperscout_topology import objects
from hyperscout_topology.names import visible
from hyperscout_topology.tree import count

from hyperscout_cli.remote.waiting import READY, Progress, Wish, wishes
from hyperscout_cli.remote.waiting import wait as waited
from hyperscout_cli.shared.command import Command
from hyperscout_cli.shared.errors import AnswerIsNoError
from hyperscout_cli.shared.options import Endpoint, collector_options, output_option
from hyperscout_cli.shared.output import emit, emit_data
from hyperscout_cli.shared.tables import Row, Table, age, lines

if TYPE_CHECKING:
    from hyperscout.v1.topology_pb2 import GetStatusResponse
    from hyperscout_topology.topology import Topology

    from hyperscout_cli.remote.client import Collector

    Seen = tuple[GetStatusResponse, Topology]

POLL_S = 0.5
MAX_MISSING = 5  # lines of what is not so


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  hyperscout status
  hyperscout status -o json
  hyperscout status --wait --wait-timeout 300 && echo all is well
  hyperscout status --for generation=42
  hyperscout status --for 'node/gpu-[01-16]' --for hypernode/leaf-03-1f2e=Ready

\b
What --for takes:
  ready                        nothing is wrong (what --wait alone waits for)
  generation=N                 generation N or a later one is published
  node/NAME                    the node is in the hierarchy
  hypernode/NAME               it is published
  hypernode/NAME=CONDITION     and its condition Ready, Degraded, Consistent or Stale is as it should be
  hypernode/NAME=CONDITION=STATUS
NAME may be a host list. A collector that cannot be reached yet is waited for.

\b
Exit codes: 0 ok, 1 failure, 2 wrong usage, 3 it did not come to be in time.""",
)
@output_option()
@click.option("--wait", is_flag=True, help="Wait until nothing is wrong; exit 3 if that does not come to be.")
@click.option(
    "--for",
    "wanted",
    metavar="WHAT",
    multiple=True,
    callback=wishes,
    help="Wait for this; repeat it to wait for all of them.",
)
@click.option(
    "--wait-timeout",
    "wait_timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="How long --wait and --for wait.",
)
@collector_options
def status(
    *, output: str, wait: bool, wanted: tuple[Wish, ...], wait_timeout_s: float, collector: Endpoint
) -> int:
    """Show agents, sweeps, findings, the published generation, and what is held or wrong."""
    from hyperscout_cli.remote.client import Collector

    wanted = wanted or ((Wish(READY),) if wait else ())
    with Collector(collector) as connection:
        seen, missing = _wait(connection, wanted, wait_timeout_s)
    current, topology = seen
    wrong = objects.what_is_wrong(current, topology)
    if not emit_data(objects.plain(current) | {"wrong": wrong}, output):
        emit(report(current, wrong, time.time_ns()))
    if not missing:
        return 0
    if [wish.text for wish in wanted] == [READY]:
        raise AnswerIsNoError(f"not well after {wait_timeout_s:g} s: {count(len(wrong), 'thing')} wrong")
    raise AnswerIsNoError(f"not so after {wait_timeout_s:g} s: {'; '.join(missing[:MAX_MISSING])}")


def _wait(connection: "Collector", wanted: Sequence[Wish], limit_s: float) -> "tuple[Seen, list[str]]":
    """The status and the topology as soon as they are as wanted, or when the time is over."""

    def look() -> "Seen":
        return connection.status(), connection.topology(links=False)

    def lacking(seen: "Seen") -> list[str]:
        wrong = objects.what_is_wrong(*seen)
        return [line for wish in wanted for line in wish.lacking(seen[1], wrong)]

    if not wanted:
        return look(), []
    progress = Progress(shutil.get_terminal_size().columns)
    try:
        return waited(
            look,
            lacking,
            limit_s=limit_s,
            clock=time.monotonic,
            pause=lambda: time.sleep(POLL_S),
            say=progress.say,
        )
    finally:
        progress.done()


def report(current: "GetStatusResponse", wrong: list[str], now_ns: int) -> Iterator[str]:
    """The status as text."""

    def ago(stamp_ns: int) -> str:
        return f"{age(stamp_ns, now_ns) or '?'} ago" if stamp_ns else "never"

    connected = sum(agent.connected for agent in current.agents)
    failed = sum(agent.failed_findings for agent in current.agents)
    facts = {
        "Collector": f"{current.version}, started {ago(current.started_at.ToNanoseconds())}",
        "Generation": f"{current.generation}, published {ago(current.published_at.ToNanoseconds())}",
        "Agents": f"{connected} of {len(current.agents)} connected",
        "Findings": f"{current.findings}, {current.stale_findings} stale, {failed} failed",
    }
    if current.placements:
        workers = count(current.placed_workers, "worker")
        facts["Placed"] = f"{count(current.placements, 'gang')}, {workers}"
    for key, value in facts.items():
        yield f"{key + ':':<12}{value}\n"
    if current.leases:
        yield "\n"
        yield from lines(_leases(current, now_ns))
    if wrong:
        yield "\nWrong:\n"
        yield from (f"  {visible(text)}\n" for text in wrong)
    else:
        yield "\nNothing is wrong.\n"


def _leases(current: "GetStatusResponse", now_ns: int) -> Table:
    rows = [
        Row(
            lease.lease_id,
            (
                lease.node,
                f"{lease.device}/{lease.port}",
                age(lease.granted_at.ToNanoseconds(), now_ns),
                age(lease.last_sweep_at.ToNanoseconds(), now_ns),
                "partial" if lease.partial else "",
            ),
        )
        for lease in current.leases
    ]
    return Table("lease", ("SWEPT-FROM", "PORT", "LEASED", "LAST-SWEEP", "NOTE"), (), tuple(rows))

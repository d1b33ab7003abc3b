"""`hyperscout status`: is the picture whole, and is the fabric well?"""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click
from hyperscout_collector.api import objects
from hyperscout_collector.publish.texts.names import visible
from hyperscout_collector.publish.texts.tree import count

from hyperscout_cli.errors import AnswerIsNoError
from hyperscout_cli.options import Endpoint, collector_options
from hyperscout_cli.output import emit, emit_json
from hyperscout_cli.tables import Row, Table, age, lines

if TYPE_CHECKING:
    from hyperscout.v1.topology_pb2 import GetStatusResponse

    from hyperscout_cli.client import Collector

POLL_S = 0.5


@click.command(
    epilog="""\b
Examples:
  hyperscout status
  hyperscout status -o json
  hyperscout status --wait --wait-timeout 300 && echo all is well"""
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--wait", is_flag=True, help="Wait until nothing is wrong; exit 3 if that does not come to be.")
@click.option(
    "--wait-timeout",
    "wait_timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="How long --wait waits.",
)
@collector_options
def status(*, output: str, wait: bool, wait_timeout_s: float, collector: Endpoint) -> int:
    """Show agents, sweeps, findings, the published generation, and what is held or wrong."""
    from hyperscout_cli.client import Collector

    with Collector(collector) as connection:
        current, wrong = look(connection)
        if wait:
            until = time.monotonic() + wait_timeout_s
            current, wrong = wait_for_health(
                lambda: look(connection), lambda: time.monotonic() < until, lambda: time.sleep(POLL_S)
            )
    if output == "json":
        emit_json(objects.plain(current) | {"wrong": wrong})
    else:
        emit(report(current, wrong, time.time_ns()))
    if wait and wrong:
        raise AnswerIsNoError(f"not well after {wait_timeout_s:g} s: {count(len(wrong), 'thing')} wrong")
    return 0


def look(connection: "Collector") -> "tuple[GetStatusResponse, list[str]]":
    """The status, and what is wrong in words."""
    current = connection.status()
    return current, objects.what_is_wrong(current, connection.topology(links=False))


def wait_for_health(
    look: "Callable[[], tuple[GetStatusResponse, list[str]]]",
    more: Callable[[], bool],
    pause: Callable[[], None],
) -> "tuple[GetStatusResponse, list[str]]":
    """Look until nothing is wrong or there is no `more` time."""
    while True:
        current, wrong = look()
        if not wrong or not more():
            return current, wrong
        pause()


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

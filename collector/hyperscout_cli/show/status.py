"""`hyperscout status`: shows the state of the collector and the fabric, and waits for a state."""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from hyperscout_formats.text.counts import count
from hyperscout_topology import objects
from hyperscout_topology.names import visible
from hyperscout_topology.problems import agent_notes, problems_of

from hyperscout_cli.remote.waiting import READY, Progress, WantedState, wanted_states
from hyperscout_cli.remote.waiting import wait as waited
from hyperscout_cli.shared.command import Command
from hyperscout_cli.shared.errors import AnswerIsNoError, unwritable
from hyperscout_cli.shared.options import Endpoint, collector_options, output_option
from hyperscout_cli.shared.output import emit, emit_data, note
from hyperscout_cli.shared.tables import Row, Table, age, facts, lines
from hyperscout_cli.shared.times import Duration

if TYPE_CHECKING:
    from hyperscout.v1.topology_pb2 import GetStatusResponse
    from hyperscout_topology.topology import Topology

    from hyperscout_cli.remote.client import Collector

    Seen = tuple[GetStatusResponse, Topology, list[str]]  # the last: every problem

POLL_S = 0.5
MAX_MISSING = 5  # missing states in an error


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  hyperscout status
  hyperscout status -o json
  hyperscout status --wait --wait-timeout 5m && echo all is well
  hyperscout status --for generation=42
  hyperscout status --for 'node/gpu-[01-16]' --for hypernode/leaf-03-1f2e=Ready
  hyperscout status --event-log events.jsonl     for a bug report; needs the right to change

\b
Values of --for:
  ready                        nothing is wrong (the default of --wait)
  generation=N                 generation N or a later one is published
  node/NAME                    the node is in the hierarchy
  hypernode/NAME               the HyperNode is published
  hypernode/NAME=CONDITION     its condition has the healthy status: that of Ready and Consistent is True,
                               that of Degraded and Stale is False
  hypernode/NAME=CONDITION=STATUS
NAME may be a host list. The command also waits for a collector that is not reachable yet.

\b
Exit codes: 0 ok, 1 failure, 2 wrong usage, 3 the time limit passed.""",
)
@output_option()
@click.option("--wait", is_flag=True, help="Wait until nothing is wrong; exit 3 at the time limit.")
@click.option(
    "--for",
    "wanted",
    metavar="WHAT",
    multiple=True,
    callback=wanted_states,
    help="Wait for this state; repeat the option to wait for several.",
)
@click.option(
    "--wait-timeout",
    "wait_timeout_s",
    type=Duration(0, 30 * 86_400),
    default="60s",
    show_default=True,
    help="Time limit of --wait and --for.",
)
@click.option(
    "--event-log",
    "event_log",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Only write the latest events of the collector's state machines to FILE, for doctor --replay.",
)
@collector_options
def status(
    *,
    output: str,
    wait: bool,
    wanted: tuple[WantedState, ...],
    wait_timeout_s: float,
    event_log: Path | None,
    collector: Endpoint,
) -> int:
    """Show agents, sweeps, findings, the published and the held generation, and problems."""
    from hyperscout_cli.remote.client import Collector

    if event_log is not None:
        if wait or wanted:
            raise click.UsageError("--event-log cannot be used with --wait or --for: call status twice")
        with Collector(collector) as connection:
            _write(event_log, list(connection.event_log()))  # before the file is opened: it may be refused
        return 0
    wanted = wanted or ((WantedState(READY),) if wait else ())
    with Collector(collector) as connection:
        seen, missing = _wait(connection, wanted, wait_timeout_s)
    current, topology, wrong = seen
    notes = agent_notes(current, topology)
    if not emit_data(objects.plain(current) | {"wrong": wrong, "notes": notes}, output):
        emit(report(current, wrong, notes, time.time_ns()))
    if not missing:
        return 0
    only_ready = [state.text for state in wanted] == [READY]
    what = count(len(wrong), "problem") if only_ready else "; ".join(missing[:MAX_MISSING])
    raise AnswerIsNoError(f"the time limit of {wait_timeout_s:g} s has passed: {what}")


def _write(file: Path, lines: Sequence[str]) -> None:
    """Write an event log, readable only by its owner: it names pods and workloads."""
    try:
        with open(file, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
            out.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise unwritable(file, error) from error
    note(f"{file}: {count(len(lines), 'line')} written")


def _wait(connection: "Collector", wanted: Sequence[WantedState], limit_s: float) -> "tuple[Seen, list[str]]":
    """The status, the topology and the problems once they are as wanted, or at the time limit."""

    def look() -> "Seen":
        current, topology = connection.status(), connection.topology(links=False)
        return current, topology, problems_of(current, topology)

    def lacking(seen: "Seen") -> list[str]:
        return [line for state in wanted for line in state.lacking(*seen[1:])]

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


def report(
    current: "GetStatusResponse", wrong: Sequence[str], notes: Sequence[str], now_ns: int
) -> Iterator[str]:
    """The status as text. `notes`: what is not right at agents, while the topology may be whole."""

    def ago(stamp_ns: int) -> str:
        return f"{age(stamp_ns, now_ns) or '?'} ago" if stamp_ns else "never"

    published = "before the start of the collector"
    if current.HasField("published_at") or not current.generation:
        published = ago(current.published_at.ToNanoseconds())
    connected = sum(agent.connected for agent in current.agents)
    failed = sum(agent.failed_findings for agent in current.agents)
    values = {
        "Collector": f"{current.version}, started {ago(current.started_at.ToNanoseconds())}",
        "Generation": f"{current.generation}, published {published}",
        "Agents": f"{connected} of {len(current.agents)} connected",
        "Findings": f"{current.findings}, {current.stale_findings} stale, {failed} failed",
    }
    if current.placements:
        workers = count(current.placed_workers, "worker")
        values["Placed"] = f"{count(current.placements, 'gang')}, {workers}"
    yield from facts(values, 12)
    if current.leases:
        yield "\n"
        yield from lines(_leases(current, now_ns))
    if not wrong:
        yield "\nNothing is wrong with the topology.\n" if notes else "\nNothing is wrong.\n"
    for title, texts in (("Wrong", wrong), ("Notes", notes)):
        if texts:
            yield f"\n{title}:\n"
            yield from (f"  {visible(text)}\n" for text in texts)


def _leases(current: "GetStatusResponse", now_ns: int) -> Table:
    rows = [
        Row(
            lease.lease_id,
            (
                lease.node,
                f"{lease.device}/{lease.port}",
                age(lease.granted_at.ToNanoseconds(), now_ns),
                age(lease.last_sweep_at.ToNanoseconds(), now_ns),
                "partial" if lease.partial else "unconfirmed" if lease.unconfirmed else "",
            ),
        )
        for lease in current.leases
    ]
    return Table("lease", ("SWEPT-FROM", "PORT", "LEASED", "LAST-SWEEP", "NOTE"), (), tuple(rows))

"""`hyperscout loadtest`: measures a collector with thousands of simulated agents."""

import asyncio
import logging
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
from hyperscout_formats.text.counts import count

from hyperscout_cli.demo.demo import INTERRUPTED
from hyperscout_cli.demo.demo_collector import DemoError
from hyperscout_cli.loadtest.child import LoadTestError
from hyperscout_cli.loadtest.figures import Report
from hyperscout_cli.loadtest.run import SEEN_S, Target, run
from hyperscout_cli.loadtest.settings import LoadTestSettings, check
from hyperscout_cli.remote.open_files import raise_open_files
from hyperscout_cli.shared.command import Command, WholeNumber
from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.shared.options import Endpoint, existing_collector_options, output_option
from hyperscout_cli.shared.output import emit_data, note
from hyperscout_cli.shared.tables import show
from hyperscout_cli.shared.times import Duration


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  hyperscout loadtest --agents 1000
  hyperscout loadtest --agents 10000 --processes 2 --changes-per-minute 100 -o json
  hyperscout loadtest --agents 10000 --plaintext --changes 0 --restart
  hyperscout loadtest --collector test-collector:50051 --tls-ca ca.crt
  hyperscout loadtest --collector replica-0:50051,replica-1:50051 --tls-ca ca.crt""",
)
@click.option(
    "--agents", type=WholeNumber(1, 100_000), default=1000, show_default=True, help="Number of agents."
)
@click.option(
    "--processes",
    type=WholeNumber(1, 256),
    default=2,
    show_default=True,
    help="Number of processes that the agents share.",
)
@click.option(
    "--changes-per-minute",
    type=WholeNumber(1, 6000),
    default=100,
    show_default=True,
    help="How often a link of a host goes down or returns.",
)
@click.option(
    "--duration",
    "duration_s",
    type=Duration(1, 86_400),
    help="How long links change; 3m unless --changes is given.",
)
@click.option(
    "--changes", type=WholeNumber(0, 1_000_000), help="Number of changes, in place of --duration; 0 = none."
)
@click.option(
    "--refresh-interval",
    "refresh_interval_s",
    type=Duration(1, 3600),
    default="60s",
    show_default=True,
    help="The agents' setting refresh_interval_s.",
)
@click.option("--plaintext", is_flag=True, help="Use no TLS between agents and the started collector.")
@click.option("--restart", is_flag=True, help="Then restart the started collector, and measure again.")
@click.option(
    "--timeout",
    "timeout_s",
    type=Duration(1, 86_400),
    default="10m",
    show_default=True,
    help="Time limit of each wait for the agents or for the collector.",
)
@existing_collector_options
@output_option()
def loadtest(
    *,
    agents: int,
    processes: int,
    changes_per_minute: int,
    duration_s: float | None,
    changes: int | None,
    refresh_interval_s: float,
    plaintext: bool,
    restart: bool,
    timeout_s: float,
    collectors: Sequence[Endpoint],
    output: str,
) -> int:
    """Measure a collector with thousands of simulated agents, each with a connection of its own.

    Starts a collector on a free loopback port, the agents in processes of their own, and a watcher. The
    agents and the watcher use TLS with client certificates that are made for this run. Then links of hosts
    go down and return, each at most once in two minutes. Prints how long it takes until the watcher sees a
    change, and what the collector and the agents' processes use.

    An existing collector (--collector) gets one node for each agent: use a collector for tests, with
    `authenticate: none`. Replicas with PostgreSQL (--collector ADDR,ADDR,...) share the agents evenly. An
    agent whose replica ends moves to the next address. The watcher is at the first one.
    """
    # A missing package of the collector or of LLDP ends the load test here, with the names of the extras.
    import hyperscout_collector.app.replica.process  # noqa: F401
    import scapy  # noqa: F401

    if duration_s is not None and changes is not None:
        raise click.UsageError("--duration and --changes: give one of them")
    if collectors and (plaintext or restart):
        raise click.UsageError("--plaintext and --restart need a new collector: leave out --collector")
    if changes is None:
        changes = round((duration_s or 180.0) * changes_per_minute / 60)
    target = existing(collectors) if collectors else None
    with_tls = target.credentials.ca is not None if target is not None else not plaintext
    settings = LoadTestSettings(
        agents, processes, changes, changes_per_minute, refresh_interval_s, timeout_s, with_tls, restart
    )
    check(settings, raise_open_files(), _local_ports(), own_collector=target is None)
    logging.basicConfig(level=logging.ERROR)
    try:
        report = asyncio.run(_run(settings, target))
    except (LoadTestError, DemoError) as error:
        raise CliError(f"the load test failed: {error}") from error
    except asyncio.CancelledError:
        return INTERRUPTED
    if not emit_data(report.data(), output):
        show(report.table(), output)
    if report.unseen:
        raise CliError(
            f"the watcher did not see {report.unseen} of {settings.changes} changes within {SEEN_S:g} s "
            "after the last one"
        )
    return 0


async def _run(settings: LoadTestSettings, target: Target | None) -> Report:
    main = asyncio.current_task()
    assert main is not None  # noqa: S101 (this coroutine runs in a task)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, main.cancel)
    begun_s = time.monotonic()

    def say(text: str) -> None:
        note(f"[{time.monotonic() - begun_s:5.1f} s] {text}")

    with tempfile.TemporaryDirectory(prefix="hyperscout-loadtest-") as folder:
        return await run(settings, Path(folder), say, target)


def _local_ports() -> int:
    """The number of ports for connections to one address (ip_local_port_range, ip(7))."""
    first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    return int(last) - int(first) + 1


def existing(endpoints: Sequence[Endpoint]) -> Target:
    """The collectors at some addresses, which share their credentials.

    Raises CliError if one has agents, also those of an earlier load test.
    """
    from hyperscout_cli.remote.client import Collector

    for endpoint in endpoints:
        with Collector(endpoint) as connection:
            if known := [agent.node for agent in connection.status().agents]:
                raise CliError(
                    f"the collector at {connection.address} has {count(len(known), 'agent')}, such as "
                    f"{known[0]}: use a collector for tests, with an empty data_dir"
                )
    return Target([endpoint.address for endpoint in endpoints], endpoints[0].credentials)

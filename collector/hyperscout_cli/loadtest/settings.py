"""The settings of a load test, and whether they fit. No I/O."""

import math
from dataclasses import dataclass

import click

from hyperscout_cli.loadtest.link_schedule import QUIET_S
from hyperscout_cli.remote.open_files import check_open_files

RAILS = 4  # of `hyperscout_sim.fabric.shapes.cluster`
_QUIET_MIN = QUIET_S / 60
_MOST_DOWN = 4  # at most one link in so many is down
_MOST_REST_S = 60.0
_WATCHERS = 1  # it connects from a local port too


@dataclass(frozen=True, slots=True)
class LoadTestSettings:
    """What to run. `restart`: the collector, after the changes.

    `timeout_s`: of each wait for the agents or for the collector.
    """

    agents: int
    processes: int = 2
    changes: int = 0
    changes_per_minute: int = 100
    refresh_interval_s: float = 60.0
    timeout_s: float = 600.0
    tls: bool = True
    restart: bool = False


def rest_s(settings: LoadTestSettings) -> float:
    """How long to measure at rest: as long as links change, at most a minute, in whole refresh intervals."""
    wanted_s = min(_MOST_REST_S, settings.changes * 60 / settings.changes_per_minute)
    interval_s = settings.refresh_interval_s
    return interval_s * max(1, math.ceil(wanted_s / interval_s))


def check(settings: LoadTestSettings, most_files: int, local_ports: int, *, own_collector: bool) -> None:
    """Raise UsageError if the settings contradict each other, or need more open files or ports than exist.

    `local_ports`: the number of ports for connections to one address.
    """
    if settings.processes > settings.agents:
        raise click.UsageError(
            f"--processes {settings.processes}: more than --agents {settings.agents}: "
            "give each process an agent"
        )
    used = min(settings.changes, int(_QUIET_MIN * settings.changes_per_minute) + 1)
    if used * _MOST_DOWN > settings.agents * RAILS:
        least = -(-used * _MOST_DOWN // RAILS)
        most = int((settings.agents * RAILS // _MOST_DOWN - 1) / _QUIET_MIN)
        slower = f"at most --changes-per-minute {most}" if most > 0 else "fewer --changes"
        raise click.UsageError(
            f"{settings.agents} agents have {settings.agents * RAILS} links, and {used} of them would be "
            "down at a time, since a link changes at most once in two minutes: "
            f"give at least --agents {least}, or {slower}"
        )
    if own_collector:
        check_open_files(settings.agents, most_files, process="the collector", flag="--agents")
    else:
        share = -(-settings.agents // settings.processes)
        process, processes = "each process of agents", settings.processes
        check_open_files(share, most_files, process=process, flag="--agents", processes=processes)
    if settings.agents + _WATCHERS > local_ports:
        raise click.UsageError(
            f"--agents {settings.agents}: each agent needs a local port, and this machine has {local_ports} "
            f"for one address: give at most --agents {max(0, local_ports - _WATCHERS)}, or widen "
            "net.ipv4.ip_local_port_range (`sysctl`)"
        )

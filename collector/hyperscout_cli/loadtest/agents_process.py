"""A process with a part of the simulated agents. `run.py` starts it."""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from hyperscout.v1.finding_pb2 import Finding
from hyperscout_runtime.credentials import Credentials
from hyperscout_sim.agents.player import Player
from hyperscout_sim.agents.schedule import spread
from hyperscout_sim.fabric.shapes import cluster

from hyperscout_cli.loadtest.certificates import client_credentials
from hyperscout_cli.loadtest.child import Message, end, messages, send_to_parent
from hyperscout_cli.loadtest.link_schedule import host_links

_REPORT_EVERY_S = 0.2
Acknowledged = tuple[str, str, str, int, str]  # node, probe, subject, when it was observed (ns), its digest
UPLINK = "hyperscout_agent.uplink.uplink"  # logs why a connection failed


async def main() -> None:
    """Run the agents that the first message names, and change links, until the parent closes the pipe."""
    commands = messages()
    job = await anext(commands)
    fabric = cluster(job["agents"])
    part = fabric.hosts[job["part"] :: job["parts"]]
    links = host_links(fabric)
    player = Player(
        fabric,
        spread(fabric.hosts, job["targets"]),
        lldp=True,
        refresh_interval_s=job["refresh_interval_s"],
        part=part,
        credentials=_credentials(job),
    )
    owner = fabric.node_map()
    done = 0
    unsettled = Unsettled(part)

    async def report() -> None:
        """Tell the parent the state of the agents, several times a second."""
        while True:
            unsettled.saw(host for host, agent in player.agents.items() if agent.settled)
            settled = not unsettled.hosts and player.streaming == len(part)
            findings = sum(len(agent.store) for agent in player.agents.values()) if settled else 0
            state = {"streaming": player.streaming, "settled": settled, "findings": findings}
            send_to_parent(at_ns=time.monotonic_ns(), commands=done, **state)
            await asyncio.sleep(_REPORT_EVERY_S)

    tasks = [asyncio.create_task(report())]
    async for command in commands:
        if "start" in command:
            tasks.append(asyncio.create_task(_played(player)))
        elif "renew" in command:
            await renew(player)
        elif "connected" in command:
            send_to_parent(acknowledged=acknowledged(player, connected=command["connected"]))
        elif "link" in command:
            # All processes change their fabric, since each may have the agent that sweeps it.
            at_ns, cable = time.monotonic_ns(), links[command["link"]]
            (player.cut if command["down"] else player.restore)(cable)
            if owner[cable.a] in player.agents:
                send_to_parent(at_ns=at_ns, made=command["change"])
        done += 1
        unsettled.command()
    del tasks  # they run until here
    end()


class Unsettled:
    """The agents that were not settled since the last command.

    All agents are never settled at one time: while thousands report again, a few wait for acknowledgements.
    """

    def __init__(self, part: Iterable[str]) -> None:
        self._part = frozenset(part)
        self.hosts = set(self._part)

    def command(self) -> None:
        self.hosts = set(self._part)

    def saw(self, settled: Iterable[str]) -> None:
        self.hosts.difference_update(settled)


def _credentials(job: Message) -> Callable[[str], Credentials]:
    """Host -> credentials: issued by the authority in `folder`, or the `given` ones."""
    if "folder" in job:
        folder = Path(job["folder"])
        return lambda host: client_credentials(folder, f"node/{host}")
    paths = {name: Path(job["given"][name]) for name in ("ca", "cert", "key") if job["given"][name]}
    given = Credentials(**job["given"] | paths)
    return lambda host: given


async def renew(player: Player) -> None:
    """Change every finding of every agent, and let it report before the next one changes.

    Later observations show the same. A collector ends a stream that is silent, as it would be while thousands
    of agents changed at once in one process.
    """
    for agent in list(player.agents.values()):
        await asyncio.sleep(0)
        agent.flaps += 1
        for probe in ("lldp", "infiniband"):
            for subject in agent.store.subjects(probe):
                finding = Finding()
                finding.CopyFrom(agent.store.get(probe, subject) or finding)
                finding.observed_at.FromNanoseconds(time.time_ns())
                if probe == "lldp":
                    finding.lldp.carrier_changes += 1
                else:
                    finding.infiniband.link_downed += 1
                agent.store.put(finding)


def acknowledged(player: Player, *, connected: bool) -> list[Acknowledged]:
    """Findings of agents that are connected, or are not. A collector has acknowledged all that they have."""
    return [
        (agent.host, probe, subject, finding.observed_at.ToNanoseconds(), content_digest(finding))
        for agent in player.agents.values()
        if agent.uplink.stats.connected is connected
        if agent.uplink.stats.batches_acked and not agent.store.dirty
        for probe in ("lldp", "infiniband")
        for subject in agent.store.subjects(probe)
        if (finding := agent.store.get(probe, subject)) is not None
    ]


def content_digest(finding: Finding) -> str:
    """The same for findings that differ in nothing but their time."""
    content = Finding()
    content.CopyFrom(finding)
    content.ClearField("observed_at")
    return hashlib.sha256(content.SerializeToString(deterministic=True)).hexdigest()


async def _played(player: Player) -> None:
    try:
        await player.run()
    except Exception as error:
        send_to_parent(error=f"the simulated agents ended: {error!r}")


class _FirstWarning(logging.Handler):
    """Tells the parent the first warning of an agent: thousands of agents have the same one."""

    def emit(self, record: logging.LogRecord) -> None:
        send_to_parent(warning=record.getMessage())
        logging.getLogger(UPLINK).removeHandler(self)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    logging.getLogger(UPLINK).addHandler(_FirstWarning(logging.WARNING))
    logging.getLogger(UPLINK).propagate = False
    logging.getLogger(UPLINK).setLevel(logging.WARNING)
    asyncio.run(main())

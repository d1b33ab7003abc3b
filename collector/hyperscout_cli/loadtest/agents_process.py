"""A process with a part of the simulated agents. `run.py` starts it."""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from hyperscout.v1.finding_pb2 import Finding
from hyperscout_runtime.credentials import Credentials
from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.shapes import cluster

from hyperscout_cli.loadtest.certificates import client_credentials
from hyperscout_cli.loadtest.child import Message, end, messages, send_to_parent
from hyperscout_cli.loadtest.link_schedule import host_links

_REPORT_EVERY_S = 0.2
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
        [job["target"]],
        lldp=True,
        refresh_interval_s=job["refresh_interval_s"],
        part=part,
        credentials=_credentials(job),
    )
    owner = fabric.node_map()
    done = 0

    async def report() -> None:
        """Tell the parent the state of the agents, several times a second."""
        while True:
            settled = len(player.agents) == len(part) and player.settled
            findings = sum(len(agent.store) for agent in player.agents.values()) if settled else 0
            state = {"streaming": player.streaming, "settled": settled, "findings": findings}
            send_to_parent(at_ns=time.monotonic_ns(), commands=done, **state)
            await asyncio.sleep(_REPORT_EVERY_S)

    tasks = [asyncio.create_task(report())]
    async for command in commands:
        if "start" in command:
            tasks.append(asyncio.create_task(_played(player)))
        elif "renew" in command:
            renew(player)
        elif "link" in command:
            # All processes change their fabric, since each may have the agent that sweeps it.
            at_ns, cable = time.monotonic_ns(), links[command["link"]]
            (player.cut if command["down"] else player.restore)(cable)
            if owner[cable.a] in player.agents:
                send_to_parent(at_ns=at_ns, made=command["change"])
        done += 1
    del tasks  # they run until here
    end()


def _credentials(job: Message) -> Callable[[str], Credentials]:
    """Host -> credentials: issued by the authority in `folder`, or the `given` ones."""
    if "folder" in job:
        folder = Path(job["folder"])
        return lambda host: client_credentials(folder, f"node/{host}")
    paths = {name: Path(job["given"][name]) for name in ("ca", "cert", "key") if job["given"][name]}
    given = Credentials(**job["given"] | paths)
    return lambda host: given


def renew(player: Player) -> None:
    """Change every finding of every agent. Later observations show the same."""
    for agent in player.agents.values():
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

"""From a cable to a HyperNode with the real tool: ibsim's fabric, `ibnetdiscover`, agents, collector.

Cables are cut, restored and miswired from ibsim's console while everything runs.
"""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import Cable, SimFabric
from hyperscout_sim.readings.ibsim_net import ibsim_net
from hyperscout_sim.readings.sysfs import tree
from support.collector_process import CollectorProcess, collector_process
from support.ibsim import DEVICE, Ibsim, running_ibsim
from support.live import Watcher, agent_process, anomalies, domains, status
from support.real import require_real, tool

require_real("ibsim", "ibnetdiscover")

FABRIC = shapes.clos2(3, 4, 3)
PROMPT = (
    "--sweep-interval-s",
    "1",
    "--hold-down-s",
    "0.1",
    "--settle-s",
    "0.2",
)


def write_sysfs(folder: Path, fabric: SimFabric, host: str, *, cut: bool = False) -> None:
    """The host's own view of its port, as the kernel keeps it."""
    (adapter,) = fabric.adapters_of()[host]
    cable = next(c for c in fabric.cables if c.a == adapter.guid)
    for name, content in tree({replace(adapter, device=DEVICE): None if cut else cable}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@contextlib.asynccontextmanager
async def agent(tmp_path: Path, ibsim: Ibsim, collector: CollectorProcess, host: str) -> AsyncIterator[Path]:
    """A real agent that looks from a host of the simulated fabric. Yields its tree of sysfs files."""
    folder = tmp_path / host / "class" / "infiniband"
    write_sysfs(folder, FABRIC, host)
    (adapter,) = FABRIC.adapters_of()[host]
    command = f"{tool('ibsim-run')} {tool('ibnetdiscover')}"
    flags = ["--collector", collector.address, "--node", host, "--infiniband-root", str(folder)]
    flags += ["--no-lldp-enabled", "--ibnetdiscover-command", command]
    async with agent_process(*flags, cwd=tmp_path, environment=ibsim.env(f"H-{adapter.guid:016x}")):
        yield folder


def names(cable: Cable) -> tuple[str, str]:
    host = FABRIC.node_map().get(cable.a)
    by_guid = {s.guid: s.name for s in FABRIC.switches}
    one, other = sorted((host or by_guid[cable.a], by_guid[cable.b]))
    return one, other


async def test_a_real_sweep_becomes_hypernodes_and_a_cut_cable_shows(tmp_path: Path) -> None:
    first, second = FABRIC.hosts[0], FABRIC.hosts[5]
    uplink = next(c for c in FABRIC.cables if c.a not in FABRIC.node_map())
    leaf, spine = f"S-{uplink.a:016x}", f"S-{uplink.b:016x}"
    truth = {frozenset(d) for d in FABRIC.truth.tiers[0]}
    with running_ibsim(tmp_path, ibsim_net(FABRIC)) as ibsim:
        async with (
            collector_process(tmp_path, *PROMPT) as collector,
            agent(tmp_path, ibsim, collector, first),
            agent(tmp_path, ibsim, collector, second) as second_sysfs,
        ):
            watcher = Watcher(collector.address)
            whole = await watcher.until(lambda t: domains(t) == truth, "every domain")
            assert domains(whole, 2) == {frozenset(FABRIC.hosts)}
            assert whole.anomalies == ()

            ibsim.unlink(leaf, uplink.a_port)
            cut = await watcher.until(lambda t: bool(t.anomalies), "the cut uplink")
            (missing,) = cut.anomalies
            assert (
                missing.kind,
                *sorted((missing.subject.name, missing.peer.name if missing.peer else "")),
            ) == (
                "MissingLink",
                *names(uplink),
            )
            ports = {missing.subject.port, missing.peer.port if missing.peer else ""}
            assert ports == {str(uplink.a_port), str(uplink.b_port)}
            assert domains(cut) == truth
            ibsim.relink(leaf, uplink.a_port)
            await watcher.until(lambda t: not t.anomalies, "the uplink back")

            # A whole switch goes, and comes back.
            ibsim.unlink(spine)
            gone = await watcher.until(lambda t: bool(t.anomalies), "the lost spine")
            assert anomalies(gone) == {("MissingSwitch", "", names(uplink)[1])}
            assert domains(gone) == truth
            ibsim.relink(spine)
            await watcher.until(lambda t: not t.anomalies, "the spine back")

            # Two leaves' uplinks change places: no host moves, both cables are named.
            rank = [c for c in FABRIC.cables if c.b == uplink.b]
            other = next(c for c in FABRIC.cables if c.a == rank[1].a and c.b != uplink.b)
            ibsim.unlink(leaf, uplink.a_port)
            ibsim.unlink(f"S-{other.a:016x}", other.a_port)
            ibsim.link(leaf, uplink.a_port, f"S-{other.b:016x}", other.b_port)
            ibsim.link(f"S-{other.a:016x}", other.a_port, spine, uplink.b_port)
            crossed = [
                Cable(uplink.a, uplink.a_port, other.b, other.b_port),
                Cable(other.a, other.a_port, uplink.b, uplink.b_port),
            ]
            # A sweep between the four changes shows cables in other ports, and may change a domain.
            wrong = await watcher.until(
                lambda t: {x[0] for x in anomalies(t)} == {"Miswired"} and domains(t) == truth,
                "the miswired cables",
            )
            assert anomalies(wrong) == {("Miswired", *names(c)) for c in crossed}

            # A node that answers no management packet makes sweeps partial: nothing gets smaller.
            mute = FABRIC.adapters_of()[FABRIC.hosts[-1]][0]
            ibsim.error(f"H-{mute.guid:016x}", 1, 100)
            own = FABRIC.adapters_of()[second][0]
            ibsim.unlink(f"H-{own.guid:016x}", 1)  # what a host says of its own port is believed meanwhile
            write_sysfs(second_sysfs, FABRIC, second, cut=True)
            down = await watcher.until(lambda t: status(t, second, "Degraded") == "True", "the dead port")
            assert domains(down) == truth
            assert down.nodes_without_evidence == (second,)

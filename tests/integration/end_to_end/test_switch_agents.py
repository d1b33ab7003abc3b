"""The tiers above the leaves from agents on the switches: real lldpd everywhere, each in its namespace.

Two leaves of two hosts under two spines. Switches show certificates, hosts show nothing. A cable between
switches is pulled and put back, agents go away, the collector is killed and started again.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from hyperscout_topology.topology import HyperNode, Topology
from support.callers import Code
from support.callers import said as answered
from support.collector_process import CollectorProcess, collector_process, listed
from support.identities import Family
from support.live import Watcher, agent_process, domains, doorway
from support.lldpd import ROUTER, Lab, lldp_lab
from support.real import require_real, tool
from support.waiting import TIMEOUT_S

require_real("root", "netns", "lldpd", "openssl")

HOSTS = {"leaf-1": ("n1", "n2"), "leaf-2": ("n3", "n4")}
SPINES = ("spine-1", "spine-2")
TIER_1 = {frozenset({"n1", "n2"}), frozenset({"n3", "n4"})}
TIER_2 = {frozenset({"n1", "n2", "n3", "n4"})}
# A switch reports the neighbours that run lldpd: the other switches, and the hosts n1 and n3.
WITNESSES = {
    frozenset({"leaf-1/swp1", "n1/eth0"}): ("lldp", "switch"),
    frozenset({"leaf-1/swp2", "n2/eth0"}): ("lldp",),
    frozenset({"leaf-2/swp1", "n3/eth0"}): ("lldp", "switch"),
    frozenset({"leaf-2/swp2", "n4/eth0"}): ("lldp",),
    **{frozenset({f"leaf-{i}/swp1{j}", f"spine-{j}/swp{i}"}): ("switch",) for i in (1, 2) for j in (1, 2)},
}
CUT = ("leaf-1", "swp11")  # its other end: spine-1/swp1
PROMPT = ("--hold-down-s", "0.1", "--settle-s", "0.2")
_MTLS = re.compile(rb"listens on 127\.0\.0\.1:\d+ and (127\.0\.0\.1:\d+):")


def build(lab: Lab) -> dict[str, str]:
    """The commands of `lldpctl`, where there is an lldpd."""
    ports: dict[str, list[str]] = {}

    def cable(a: tuple[str, str], b: tuple[str, str]) -> None:
        lab.cable(a, b)
        for device, port in (a, b):
            ports.setdefault(device, []).append(port)

    for number, (leaf, hosts) in enumerate(HOSTS.items(), 1):
        for place, host in enumerate(hosts, 1):
            cable((leaf, f"swp{place}"), (host, "eth0"))
        for place, spine in enumerate(SPINES, 11):
            cable((leaf, f"swp{place}"), (spine, f"swp{number}"))
    commands, daemons = {}, {}
    # The other hosts have none: their agents listen, and the leaves do not hear them.
    for name in (*HOSTS, *SPINES, "n1", "n3"):
        daemons[name] = lab.lldpd(name, ports[name], *(() if name.startswith("n") else (ROUTER,)))
        commands[name] = " ".join(daemons[name].ctl())
    for name, daemon in daemons.items():
        daemon.await_neighbours(3 if name in HOSTS else 1 if name.startswith("n") else 2)
    return commands


def as_built(topology: Topology) -> bool:
    return (domains(topology), domains(topology, 2)) == (TIER_1, TIER_2)


def witnesses(topology: Topology) -> dict[frozenset[str], tuple[str, ...]]:
    """The sources of each link, by its two ends `device/port`."""
    names = {s.id: s.name for s in topology.switches} | {a.id: a.node for a in topology.adapters}
    return {
        frozenset([f"{names[x.a_device]}/{x.a_port}", f"{names[x.b_device]}/{x.b_port}"]): x.sources
        for x in topology.links
    }


def well(topology: Topology) -> bool:
    return as_built(topology) and not topology.anomalies


def of(topology: Topology, node: str) -> HyperNode:
    return next(h for h in topology.hypernodes if h.tier == 1 and node in h.nodes)


def said_of(topology: Topology, node: str, condition: str) -> tuple[str, str]:
    found = next(c for c in of(topology, node).conditions if c.type == condition)
    return found.status, found.message


@dataclass
class Fabric:
    """All that runs beside the collector. Ways to it lead through `folder`."""

    lab: Lab
    folder: Path
    family: Family
    commands: dict[str, str]
    agents: dict[str, contextlib.AsyncExitStack] = field(default_factory=dict)

    async def start(self, name: str, *flags: str) -> None:
        inside = (str(tool("ip")), "netns", "exec", self.lab.namespace(name))
        self.agents[name] = contextlib.AsyncExitStack()
        flags = ("--node", name, "--lldp-interval-s", "1", "--refresh-interval-s", "1", *flags)
        await self.agents[name].enter_async_context(agent_process(*flags, cwd=self.folder, before=inside))

    async def start_host(self, name: str, way: str) -> None:
        flags = ["--collector", way, "--no-infiniband-enabled", "--no-ibnetdiscover-enabled"]
        flags += ["--tls-ca", str(self.family.ca), "--tls-server-name", "localhost"]
        flags += ["--lldp-ports", "eth0", "--lldp-socket", str(self.folder / f"{name}.lldp")]
        if name in self.commands:
            flags += ["--lldp-source", "lldpctl", "--lldp-lldpctl-command", self.commands[name]]
        else:
            flags += ["--lldp-source", "listener"]
        await self.start(name, *flags)

    async def start_switch(self, name: str, way: str) -> None:
        pair = self.family.pair(f"URI:hyperscout://switch/{name}")
        config = self.folder / f"{name}.yaml"
        config.write_text(
            f"role: switch\ncollectors: ['{way}']\ntls_ca: {self.family.ca}\ntls_server_name: localhost\n"
            f"tls_cert: {pair.cert}\ntls_key: {pair.key}\n"
            f'lldp: {{lldpctl_command: "{self.commands[name]}", ports: "^swp"}}\n'
        )
        await self.start(name, "--config", str(config))

    async def stop(self, *names: str) -> None:
        for name in names:
            await self.agents.pop(name).aclose()


def mtls_address(collector: CollectorProcess) -> str:
    found = _MTLS.search(collector.said)
    assert found is not None, collector.said.decode()
    return found[1].decode()


@contextlib.asynccontextmanager
async def collector_at(
    folder: Path, family: Family, *more: str, listen: str = "127.0.0.1:0", mtls: str = "127.0.0.1:0"
) -> AsyncIterator[CollectorProcess]:
    flags = ["--mtls-listen", mtls, "--tls-client-ca", str(family.ca), *PROMPT, *more]
    flags += ["--tls-cert", str(family.server.cert), "--tls-key", str(family.server.key)]
    async with collector_process(folder, *flags, listen=listen) as process:
        yield process


async def test_switches_tell_of_the_cables_between_them(tmp_path: Path) -> None:
    family = Family(tmp_path)
    with lldp_lab() as lab:
        fabric = Fabric(lab, tmp_path, family, build(lab))
        async with contextlib.AsyncExitStack() as ways:
            try:
                await story(fabric, ways)
            finally:
                await fabric.stop(*list(fabric.agents))


async def reported(address: str, family: Family) -> set[tuple[str, str]]:
    """The reporters, each with its probe."""
    found = await listed(address, credentials=family.channel())
    return {(x.finding.key.node, x.finding.key.probe) for x in found}


async def story(fabric: Fabric, ways: contextlib.AsyncExitStack) -> None:
    folder, family = fabric.folder, fabric.family
    async with collector_at(folder / "data", family) as collector:
        plain = await ways.enter_async_context(doorway(folder / "plain", collector.address))
        safe = await ways.enter_async_context(doorway(folder / "safe", mtls_address(collector)))
        for host in sorted(host for hosts in HOSTS.values() for host in hosts):
            await fabric.start_host(host, plain)
        watcher = Watcher(collector.address, family.channel())
        low = await watcher.until(lambda t: domains(t) == TIER_1, "what hosts tell")
        assert domains(low, 2) == set()
        for switch in (*HOSTS, *SPINES):
            await fabric.start_switch(switch, safe)
        # Each source arrives on its own: a whole tree may still lack one end's report of a link.
        whole = await watcher.until(lambda t: well(t) and witnesses(t) == WITNESSES, "all witnesses")
        assert whole.nodes_without_evidence == ()

        fabric.lab.link_set(CUT, "down")
        cut = await watcher.until(
            lambda t: any(said_of(t, "n1", "Degraded")[0] == "True" for _ in t.hypernodes), "the pulled cable"
        )
        assert as_built(cut)
        words = "1 of 2 uplinks down: leaf-1/swp11 -> spine-1/swp1, seen by switch"
        assert said_of(cut, "n1", "Degraded")[1].startswith(words)
        assert said_of(cut, "n3", "Degraded")[0] == "False"
        fabric.lab.link_set(CUT, "up")
        again = await watcher.until(well, "the cable back")
        assert [h.name for h in again.hypernodes] == [h.name for h in whole.hypernodes]

        # A name that is not theirs.
        at = mtls_address(collector)
        for identity, name in (
            ("switch/leaf-1", "leaf-1"),
            ("switch/leaf-1", "n1"),
            ("switch/leaf-1", "switch/leaf-2"),
            ("node/n1", "switch/leaf-1"),
        ):
            code, _ = await answered(at, family.channel(identity), name)
            assert code == Code.PERMISSION_DENIED, (identity, name)
        assert b"which calls itself 'leaf-1': these are the credentials of switch 'leaf-1'" in collector.said
        reporters = {
            *((f"switch/{name}", "switch") for name in (*HOSTS, *SPINES)),
            *((f"n{i}", "lldp") for i in range(1, 5)),
        }
        async with asyncio.timeout(TIMEOUT_S):
            while await reported(collector.address, family) != reporters:
                await asyncio.sleep(0.1)

        # Agents that are gone are no cables that are gone, nor when the collector begins anew.
        await fabric.stop("leaf-1", *SPINES)
        collector.kill()
        await collector.ended()
    ports = {"listen": collector.address, "mtls": at}
    async with collector_at(folder / "data", family, "--stale-after-s", "4", **ports) as collector:
        watcher = Watcher(collector.address, family.channel())
        silence = "evidence of 1 of 1 switches is older than its limit: leaf-1 last seen "
        stale = await watcher.until(
            lambda t: bool(t.hypernodes) and silence in said_of(t, "n1", "Stale")[1], "the silence"
        )
        assert well(stale)
        assert len(stale.links) == 8

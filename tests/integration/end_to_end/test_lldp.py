"""From an LLDP frame to a HyperNode: real lldpd on leaves, real agents on hosts, each in its namespace.

The hosts' agents hear with their own listener (scapy dissects in a process of its own) or ask the host's
lldpd. A cable is pulled while they run, and put back.
"""

import contextlib
from pathlib import Path

import pytest
from support.collector_process import collector_process
from support.live import Watcher, agent_process, domains, doorway, status
from support.lldpd import ROUTER, Lab, lldp_lab
from support.real import require_real, tool

require_real("root", "netns", "lldpd")

# Two racks of two hosts; every host is on both leaves of its rack.
RACKS = {"leaf-1a": ("n1", "n2"), "leaf-1b": ("n1", "n2"), "leaf-2a": ("n3", "n4"), "leaf-2b": ("n3", "n4")}
TRUTH = {frozenset({"n1", "n2"}), frozenset({"n3", "n4"})}
PROMPT = ("--hold-down-s", "0.1", "--settle-s", "0.2")


def build(lab: Lab) -> None:
    for number, (leaf, hosts) in enumerate(RACKS.items()):
        ports = [f"swp{i + 1}" for i in range(len(hosts))]
        for host, port in zip(hosts, ports, strict=True):
            lab.cable((host, f"eth{number % 2}"), (leaf, port))
        lab.lldpd(leaf, ports, ROUTER)


@pytest.mark.parametrize("source", ["listener", "lldpctl"])
async def test_what_leaves_say_over_lldp_becomes_hypernodes(tmp_path: Path, source: str) -> None:
    with lldp_lab() as lab:
        build(lab)
        hosts = sorted({host for row in RACKS.values() for host in row})
        commands = {}
        if source == "lldpctl":
            for host in hosts:
                daemon = lab.lldpd(host, ["eth0", "eth1"])
                daemon.await_neighbours(2)
                commands[host] = " ".join(daemon.ctl())
        async with (
            collector_process(tmp_path, *PROMPT) as collector,
            doorway(tmp_path / "door", collector.address) as target,
            contextlib.AsyncExitStack() as agents,
        ):
            for host in hosts:
                flags = ["--node", host, "--collector", target, "--no-infiniband-enabled"]
                flags += ["--no-ibnetdiscover-enabled", "--lldp-source", source, "--lldp-ports", "eth[01]"]
                flags += ["--lldp-socket", str(tmp_path / f"{host}.lldp"), "--lldp-interval-s", "1"]
                if source == "lldpctl":
                    flags += ["--lldp-lldpctl-command", commands[host]]
                inside = (str(tool("ip")), "netns", "exec", lab.namespace(host))
                await agents.enter_async_context(agent_process(*flags, cwd=tmp_path, before=inside))
            watcher = Watcher(collector.address)
            whole = await watcher.until(
                lambda t: domains(t) == TRUTH and not t.anomalies, "both racks, whole"
            )
            names = {s.id: s.name for s in whole.switches}
            assert {frozenset(names[s] for s in h.switches) for h in whole.hypernodes} == {
                frozenset({"leaf-1a", "leaf-1b"}),
                frozenset({"leaf-2a", "leaf-2b"}),
            }
            lab.link_set(("leaf-1b", "swp2"), "down")  # the cable of n2's second rail
            cut = await watcher.until(lambda t: status(t, "n2", "Degraded") == "True", "the pulled cable")
            assert domains(cut) == TRUTH
            (missing,) = (x for x in cut.anomalies if x.kind == "MissingLink")
            assert (missing.subject.name, missing.subject.port) == ("n2", "eth1")
            assert missing.peer is not None
            assert (missing.peer.name, missing.peer.port) == ("leaf-1b", "swp2")
            lab.link_set(("leaf-1b", "swp2"), "up")
            await watcher.until(lambda t: not t.anomalies, "the cable back")

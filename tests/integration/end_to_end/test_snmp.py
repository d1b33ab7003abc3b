"""Tiers out of the network itself: real snmpd and lldpd on every switch, real lldpd and agents on hosts, one
crawler.

Two units of two hosts on two rails: four leaves under two spines. The crawler knows a user and a range of
addresses; where switches are it learns from what hosts hear. Cables are pulled and moved, a switch goes
silent, credentials and ranges are wrong. What must stay secret is looked for in all that is left behind.
"""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hyperscout.v1.finding_pb2 import Outcome
from hyperscout.v1.topology_pb2 import StoredFinding
from hyperscout_topology.topology import Topology
from lab.daemons import Daemon
from lab.switches import HYPERSCOUT, SOCKET
from support.collector_process import CollectorProcess, collector_process, listed
from support.identities import Family
from support.live import Watcher, domains, doorway
from support.real import require_real
from support.snmpd import MANAGEMENT, PLAN, VIEW, Access, SnmpWires, snmp_fabric
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.long

require_real("root", "netns", "lldpd", "snmpd", "openssl")

UNITS = set(PLAN.domains.values())
ALL = {frozenset(PLAN.names)}
PROMPT = ("--hold-down-s", "0.1", "--settle-s", "0.2")
METRICS = 50053
NAME = "crawler"
REPORTER = f"fabric/{NAME}"
_MTLS = re.compile(rb"listens on 127\.0\.0\.1:\d+ and (127\.0\.0\.1:\d+):")
_FETCH = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=10).read().decode())"


@pytest.fixture(scope="module")
def access() -> Access:
    return Access()


@pytest.fixture(scope="module")
def wires(access: Access) -> Iterator[SnmpWires]:
    with snmp_fabric(access) as running:
        yield running


@dataclass
class World:
    """A collector outside, agents in the fabric, and all that they print."""

    wires: SnmpWires
    folder: Path
    family: Family
    collector: CollectorProcess
    way: str
    running: dict[str, Daemon] = field(default_factory=dict)
    logs: list[Path] = field(default_factory=list)

    @property
    def watcher(self) -> Watcher:
        return Watcher(self.collector.address, self.family.channel())

    def start(self, machine: str, name: str, identity: str, settings: dict[str, Any]) -> None:
        """An agent in a machine; `identity`: what its certificate says."""
        pair = self.family.pair(f"URI:hyperscout://{identity}")
        own = {
            "node": identity.partition("/")[2],
            "collectors": [self.way],
            "tls_ca": str(self.family.ca),
            "tls_cert": str(pair.cert),
            "tls_key": str(pair.key),
            "tls_server_name": "localhost",
            "refresh_interval_s": 1,
        }
        config, log = self.folder / f"{name}.yaml", self.folder / f"{name}.log"
        config.write_text(json.dumps(own | settings))
        lab = self.wires._lab
        at = lab.nodes.get(machine) or lab.machine(machine)
        self.running[name] = Daemon(
            at, f"agent-{name}", [str(HYPERSCOUT), "agent", "--config", str(config)], log
        )
        self.logs.append(log)

    def start_hosts(self) -> None:
        for node in PLAN.names:
            settings: dict[str, Any] = {
                "lldp": {
                    "source": "lldpctl",
                    "lldpctl_command": ["lldpctl", "-u", SOCKET],
                    "ports": "^rail",
                    "interval_s": 1,
                },
                "infiniband": {"enabled": False},
                "ibnetdiscover": {"enabled": False},
                "nvlink": {"enabled": False},
                "latency": {"enabled": False},
            }
            self.start(node, node, f"node/{node}", settings)

    def start_switches(self) -> None:
        """Agents on them, beside lldpd."""
        for name in self.wires.switches:
            lldp = {"lldpctl_command": ["lldpctl", "-u", SOCKET], "ports": "^swp", "interval_s": 1}
            self.start(name, name, f"switch/{name}", {"role": "switch", "lldp": lldp})

    def start_crawler(self, access: dict[str, Any], ranges: list[str] | None = None, **more: Any) -> None:
        snmp = {
            "access": [{"ranges": ranges or [MANAGEMENT]} | access],
            "max_interval_s": 1,
            "request_timeout_s": 0.5,
        }
        self.start("ops", NAME, f"fabric/{NAME}", {"role": "fabric", "snmp": snmp | more})

    async def stop(self, name: str) -> None:
        """Ends it and forgets it."""
        await asyncio.to_thread(self.running.pop(name).stop)

    def metrics(self, machine: str) -> str:
        lab = self.wires._lab
        at = lab.nodes.get(machine) or lab.machine(machine)
        done = at.run([sys.executable, "-I", "-c", _FETCH, f"http://127.0.0.1:{METRICS}/metrics"])
        return str(done.stdout)

    async def findings(self) -> list[StoredFinding]:
        return await listed(self.collector.address, credentials=self.family.channel())

    async def until_found(self, wanted: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """What the crawler reports, by subject, as soon as it is as wanted."""
        own: dict[str, Any] = {}
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while not wanted(own):
                    await asyncio.sleep(0.1)
                    found = await self.findings()
                    looks = [one.finding for one in found if one.finding.key.node == REPORTER]
                    # The last one that was good is kept beside one that was not.
                    looks.sort(key=lambda one: one.observed_at.ToNanoseconds())
                    own = {one.key.subject: one for one in looks}
        except TimeoutError:
            said = {k: (v.outcome, v.reason) for k, v in own.items()}
            logs = "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in self.logs)
            raise AssertionError(f"never seen: {what}; last: {said}\n{logs}") from None
        return own


@asynccontextmanager
async def world(wires: SnmpWires, folder: Path) -> AsyncIterator[World]:
    assert wires.trouble() == []
    wires.await_lldp()
    family = Family(folder / "pki")
    flags = ["--mtls-listen", "127.0.0.1:0", "--tls-client-ca", str(family.ca), *PROMPT]
    flags += ["--tls-cert", str(family.server.cert), "--tls-key", str(family.server.key)]
    async with collector_process(folder / "data", *flags) as collector:
        mtls = _MTLS.search(collector.said)
        assert mtls is not None, collector.said.decode()
        async with doorway(folder / "door", mtls[1].decode()) as way:
            found = World(wires, folder, family, collector, way)
            try:
                yield found
            finally:
                for name in list(found.running):
                    await found.stop(name)


def by_user(folder: Path, access: Access, **wrong: str) -> dict[str, Any]:
    """Settings of a v3 user, whose passwords are in files."""
    for name, text in {"auth": access.auth_key, "priv": access.priv_key, **wrong}.items():
        (folder / name).write_text(text + "\n")
    return {
        "user": access.user,
        "auth_password_file": str(folder / "auth"),
        "priv_password_file": str(folder / "priv"),
    }


def by_community(folder: Path, access: Access) -> dict[str, Any]:
    (folder / "community").write_text(access.community)
    return {"community_file": str(folder / "community")}


def as_built(topology: Topology) -> bool:
    return (domains(topology), domains(topology, 2)) == (UNITS, ALL)


def well(topology: Topology) -> bool:
    return as_built(topology) and not topology.anomalies


def condition(topology: Topology, node: str, kind: str) -> tuple[str, str]:
    """Status and message of a condition of the tier-1 HyperNode that holds a node."""
    for hypernode in topology.hypernodes:
        if hypernode.tier == 1 and node in hypernode.nodes:
            found = next(c for c in hypernode.conditions if c.type == kind)
            return found.status, found.message
    return "", "no HyperNode"


def seen_by(topology: Topology) -> dict[frozenset[str], tuple[str, ...]]:
    """Sources of each link, by both its ends."""
    names = {s.id: s.name for s in topology.switches} | {a.id: a.node for a in topology.adapters}
    return {
        frozenset([f"{names[x.a_device]}/{x.a_port}", f"{names[x.b_device]}/{x.b_port}"]): tuple(x.sources)
        for x in topology.links
    }


CABLES = {frozenset(cable.ends) for cable in PLAN.cables}
UPLINKS = {ends for ends in CABLES if not any(end.startswith("node") for end in ends)}


def leaks(world: World, access: Access, shown: list[str]) -> list[str]:
    """Where a secret of the fabric stands."""
    places = {str(path): path.read_bytes() for path in (world.folder / "data").rglob("*") if path.is_file()}
    places |= {str(path): path.read_bytes() for path in world.logs}
    places |= {f"shown {i}": text.encode() for i, text in enumerate(shown)}
    places["collector's log"] = world.collector.said
    assert len(places) > 6
    return [
        f"{secret.partition('-')[0]} in {place}"
        for place, text in places.items()
        for secret in access.secrets
        for form in (secret.encode(), secret.encode().hex().encode())
        if form in text
    ]


async def test_tiers_come_out_of_a_user_and_a_range(wires: SnmpWires, access: Access, tmp_path: Path) -> None:
    async with world(wires, tmp_path) as at:
        at.start_hosts()
        low = await at.watcher.until(lambda t: domains(t) == UNITS, "what hosts tell")
        assert domains(low, 2) == set()
        at.start_crawler(by_user(tmp_path, access))
        whole = await at.watcher.until(well, "both tiers, and nothing to complain of")
        seen = seen_by(whole)
        assert seen.keys() == CABLES
        assert {ends: seen[ends] for ends in UPLINKS} == dict.fromkeys(UPLINKS, ("snmp",))
        assert {seen[ends] for ends in CABLES - UPLINKS} == {("lldp", "snmp")}
        assert whole.nodes_without_evidence == ()

        wires.unplug("leaf-a1/swp15")
        try:
            cut = await at.watcher.until(
                lambda t: condition(t, "node1", "Degraded")[0] == "True", "the pulled cable between switches"
            )
            assert as_built(cut)
            assert condition(cut, "node3", "Degraded")[0] == "False"
            words = "1 of 4 uplinks down: leaf-a1/swp15 -> spine-1/swp1, seen by snmp"
            assert condition(cut, "node1", "Degraded")[1].startswith(words)
        finally:
            wires.plug("leaf-a1/swp15")
        again = await at.watcher.until(well, "the cable back")
        assert [h.name for h in again.hypernodes] == [h.name for h in whole.hypernodes]

        home = wires.far_end("node1/rail0")
        wires.move("node1/rail0", "leaf-b1/swp9")
        try:
            moved = await at.watcher.until(
                lambda t: condition(t, "node1", "Consistent")[0] == "False", "the moved cable of a host"
            )
            assert as_built(moved)
            assert "leaf-b1/swp9" in condition(moved, "node1", "Consistent")[1]
        finally:
            wires.move("node1/rail0", home)
        await at.watcher.until(well, "the host's cable back")

        # Silent, and in its place all the same: it forwards, and its neighbours hear it.
        wires.snmp("spine-2").stop_snmpd()
        chassis = PLAN.switch("spine-2").chassis_mac
        try:
            found = await at.until_found(
                lambda own: chassis in own and own[chassis].outcome == Outcome.OUTCOME_FAILED, "the silence"
            )
            assert "no answer" in found[chassis].reason
            assert wires.snmp("spine-2").address in found[chassis].reason
            others = {key: one.outcome for key, one in found.items() if key not in (chassis, "*")}
            assert others == dict.fromkeys(
                (s.chassis_mac for s in PLAN.switches if s.name != "spine-2"), Outcome.OUTCOME_DATA
            )
            assert as_built(await at.watcher.until(as_built, "the tree without its answers"))
        finally:
            wires.snmp("spine-2").start_snmpd()
        # Without power: nothing of it is heard any more.
        wires.down_switch("spine-2")
        try:
            dead = await at.watcher.until(
                lambda t: [(x.kind, x.subject.name) for x in t.anomalies] == [("MissingSwitch", "spine-2")],
                "a switch without power",
            )
            assert as_built(dead)
        finally:
            wires.up_switch("spine-2")
        await at.watcher.until(well, "the switch back")
        shown = [at.metrics("ops"), at.metrics("node1"), *map(str, await at.findings())]
        assert "hyperscout_agent" in shown[0]
        assert leaks(at, access, shown) == []
        assert Path(at.folder / "auth").read_text().strip() == access.auth_key, (
            "the search knows what to find"
        )


def test_access_is_as_narrow_as_the_page_says(wires: SnmpWires, access: Access) -> None:
    """docs/switch-access.md: its view, and its way to make a user."""
    require_real("snmpwalk")
    switch = wires.snmp("leaf-a1")
    ask = ["snmpbulkwalk", "-v3", "-l", "authPriv", "-u", access.user, "-a", "SHA-256", "-A", access.auth_key]
    ask += ["-x", "AES", "-X", access.priv_key, "-On", switch.address]

    def shown(oid: str) -> list[str]:
        return [line for line in wires._lab.run([*ask, oid]).stdout.splitlines() if " No " not in line]

    assert len(shown("1.0.8802.1.1.2.1.4.1.1.9")) == 4, "the names of neighbours"
    assert len(VIEW) == 6
    assert {line.split(".")[7] for line in shown("1.3.6.1.2.1")} == {"1", "2", "10", "31"}
    assert shown("1.3.6.1.2.1.4") == shown("1.3.6.1.6") == []
    kept = switch.user_file.read_text()
    assert "usmUser" in kept
    assert "\ncreateUser" not in kept
    assert not any(secret in kept for secret in access.secrets)


async def test_a_cable_has_three_witnesses(wires: SnmpWires, access: Access, tmp_path: Path) -> None:
    async with world(wires, tmp_path) as at:
        at.start_hosts()
        at.start_switches()
        at.start_crawler(by_community(tmp_path, access))

        def all_told(topology: Topology) -> bool:
            seen = seen_by(topology)
            return well(topology) and {len(sources) for sources in seen.values()} == {2, 3}

        whole = await at.watcher.until(all_told, "every cable told of by all that know it")
        seen = seen_by(whole)
        assert seen.keys() == CABLES
        assert {ends: seen[ends] for ends in UPLINKS} == dict.fromkeys(UPLINKS, ("snmp", "switch"))
        assert {seen[ends] for ends in CABLES - UPLINKS} == {("lldp", "snmp", "switch")}
        await at.stop(NAME)
        await at.watcher.until(well, "a crawler that is gone takes nothing with it")
        assert leaks(at, access, [str(one) for one in await at.findings()]) == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"auth": "not-the-password"}, "authentication"),
        ({"priv": "not-the-password"}, "privacy"),
    ],
)
async def test_wrong_passwords_are_told_and_mended_without_a_restart(
    wires: SnmpWires, access: Access, tmp_path: Path, wrong: dict[str, str], words: str
) -> None:
    async with world(wires, tmp_path) as at:
        at.start_hosts()
        at.start_crawler(by_user(tmp_path, access, **wrong))
        found = await at.until_found(
            lambda own: sum(one.outcome == Outcome.OUTCOME_FAILED for one in own.values()) >= 4,
            "four leaves that refuse the crawler",
        )
        reasons = {one.reason for one in found.values()}
        assert all(words in reason or "no answer" in reason for reason in reasons), reasons
        assert any(MANAGEMENT in reason for reason in reasons), "which entry of the settings is wrong"
        low = await at.watcher.until(lambda t: domains(t) == UNITS, "what hosts tell")
        assert domains(low, 2) == set()
        by_user(tmp_path, access)
        await at.watcher.until(well, "the right password in the file")
        assert leaks(at, access, [str(one) for one in await at.findings()]) == []
        assert "not-the-password" not in "".join(log.read_text() for log in at.logs)


async def test_a_wrong_community(wires: SnmpWires, access: Access, tmp_path: Path) -> None:
    async with world(wires, tmp_path) as at:
        at.start_hosts()
        settings = by_community(tmp_path, Access())
        at.start_crawler(settings)
        found = await at.until_found(
            lambda own: sum(one.outcome == Outcome.OUTCOME_FAILED for one in own.values()) >= 4,
            "four leaves that do not answer",
        )
        assert all(
            "no answer" in one.reason and "community" in one.reason
            for key, one in found.items()
            if key != "*" and one.outcome == Outcome.OUTCOME_FAILED
        )
        by_community(tmp_path, access)
        await at.watcher.until(well, "the right community in the file")


async def test_no_switch_outside_the_range_is_asked(wires: SnmpWires, access: Access, tmp_path: Path) -> None:
    async with world(wires, tmp_path) as at:
        at.start_hosts()
        ranges = ["10.99.0.0/16"]
        at.start_crawler(by_user(tmp_path, access), ranges)
        found = await at.until_found(lambda own: own.keys() == {"*"}, "that there is no switch to ask")
        assert found["*"].outcome == Outcome.OUTCOME_FAILED
        assert wires.snmp("leaf-a1").address in found["*"].reason
        assert "snmp.access" in found["*"].reason
        await at.stop(NAME)
        # One leaf's address alone: its neighbours are heard, and left alone.
        leaf = wires.snmp("leaf-a1")
        at.start_crawler(by_user(tmp_path, access), [f"{leaf.address}/32"])
        own = PLAN.switch("leaf-a1").chassis_mac
        found = await at.until_found(lambda own_: own in own_, "the one that may be asked")
        assert found.keys() - {"*"} == {own}


async def test_two_switches_with_one_name(access: Access, tmp_path: Path) -> None:
    names = {"leaf-a1": "leaf", "leaf-b1": "leaf"}
    with snmp_fabric(access, names=names) as wires:
        async with world(wires, tmp_path) as at:
            at.start_hosts()
            at.start_crawler(by_user(tmp_path, access))
            whole = await at.watcher.until(as_built, "both tiers")
            called = {s.id: s.name for s in whole.switches}
            assert len(set(called.values())) == len(called) == len(PLAN.switches)
            # The one that was published first keeps its name.
            twins = {called[PLAN.switch(name).chassis_mac] for name in names}
            assert all(name == "leaf" or name.startswith("leaf-") for name in twins)
            assert seen_by(whole).keys().__len__() == len(CABLES)


async def test_what_snmpwalk_saved_gives_the_same_tree(
    wires: SnmpWires, access: Access, tmp_path: Path
) -> None:
    """Offline, from the real tool's text: LLDP of hosts is left out, their names come from the leaves."""
    require_real("snmpwalk")
    argv = [str(HYPERSCOUT), "infer", "-o", "json"]
    for name in wires.switches:
        ask = ["snmpwalk", "-v2c", "-c", access.community, "-On", wires.snmp(name).address]
        text = "".join(wires._lab.run([*ask, oid]).stdout for oid in ("1.0.8802", "1.3.6.1.2.1"))
        (tmp_path / f"{name}.snmpwalk").write_text(text)
        argv += ["--snmpwalk", str(tmp_path / f"{name}.snmpwalk")]
    done = wires._lab.run(argv)
    found = json.loads(done.stdout)
    tiers = {
        tier: {frozenset(h["nodes"]) for h in found["hypernodes"] if h["tier"] == tier} for tier in (1, 2)
    }
    assert tiers == {1: UNITS, 2: ALL}
    assert len(found["links"]) == len(CABLES)
    assert {source for link in found["links"] for source in link["sources"]} == {"snmp"}

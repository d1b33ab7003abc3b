"""The lab's wires and its InfiniBand, without a Kubernetes: real lldpd, real cables, real ibnetdiscover."""

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kube.pki import Authority
from lab.infiniband import SWEEP, SYSFS, InfinibandError, InfinibandFabric
from lab.panel import CableError
from lab.plan import PLAN
from lab.switches import HYPERSCOUT
from lab.wires import Wires
from support.bare_lab import BareLab
from support.real import require_real
from support.waiting import until_seen

pytestmark = pytest.mark.long

WAIT_S = 90.0  # on a machine that does much else

# Listens to LLDP on an interface as the agent does, until the first frame and for some seconds more. Prints
# the frames in hex.
LISTEN = """
import socket, struct, sys, time
name, seconds, wait = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88CC))
raw.bind((name, 0x88CC))
group = struct.pack("IHH8s", socket.if_nametoindex(name), 0, 6, bytes.fromhex("0180c200000e0000"))
raw.setsockopt(263, 1, group)
raw.settimeout(wait)
print(raw.recv(2000).hex())
end = time.monotonic() + seconds
while (left := end - time.monotonic()) > 0:
    raw.settimeout(left)
    try:
        print(raw.recv(2000).hex())
    except TimeoutError:
        break
"""
# ICMP echo; exit 0 as soon as one answer comes.
PING = """
import socket, struct, sys, time
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
raw.settimeout(0.2)
head = struct.pack("!BBHHH", 8, 0, 0, 7, 7)
total = sum(struct.unpack("!4H", head))
total = (total >> 16) + (total & 0xFFFF)
packet = struct.pack("!BBHHH", 8, 0, ~total & 0xFFFF, 7, 7)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    try:
        raw.sendto(packet, (sys.argv[1], 0))
        answer, sender = raw.recvfrom(2000)
        if answer[20] == 0 and sender[0] == sys.argv[1]:
            sys.exit(0)
    except OSError:
        pass
sys.exit(1)
"""
# As in a pod: a user without any right, a root that cannot be written, a small /tmp.
POD = """
mount -t tmpfs -o size=16m,mode=1777 tmp /tmp
mount -o remount,bind,ro /
export HOME=/tmp PATH=/usr/sbin:/usr/bin:/bin
drop="--reuid=10001 --regid=10001 --clear-groups --bounding-set=-all --no-new-privs"
exec setpriv $drop /usr/bin/python3 -I -S "$@"
"""


@contextlib.contextmanager
def bare_lab() -> Iterator[BareLab]:
    # pytest's own folders are closed to lldpd, most of which runs as a user without rights.
    with tempfile.TemporaryDirectory(prefix="hyperscout-wires-") as folder:
        Path(folder).chmod(0o711)
        with BareLab(Path(folder)) as lab:
            yield lab


@pytest.fixture(scope="module")
def lab() -> Iterator[BareLab]:
    require_real("netns", "lldpd")
    with bare_lab() as started:
        for name in PLAN.names:
            started.add_node(name)
        yield started


@pytest.fixture(scope="module")
def wires(lab: BareLab) -> Wires:
    wires = Wires(lab, PLAN)
    wires.up()
    return wires


@pytest.fixture(scope="module")
def infiniband(lab: BareLab) -> InfinibandFabric:
    require_real("ibsim", "ibnetdiscover")
    infiniband = InfinibandFabric(lab, PLAN)
    infiniband.up()
    return infiniband


def frames(lab: BareLab, node: str, rail: str, seconds: float) -> list[bytes]:
    """At least one frame."""
    shown = (
        lab.nodes[node]
        .run([sys.executable, "-I", "-c", LISTEN, rail, str(seconds), str(WAIT_S)], timeout_s=2 * WAIT_S)
        .stdout
    )
    return [bytes.fromhex(line) for line in shown.split()]


def pings(lab: BareLab, node: str, address: str, seconds: float = WAIT_S) -> bool:
    command = [sys.executable, "-I", "-c", PING, address, str(seconds)]
    done = lab.nodes[node].run(command, check=False, timeout_s=2 * WAIT_S)
    return bool(done.returncode == 0)


def index_of(lab: BareLab, node: str, interface: str) -> int:
    return int(lab.nodes[node].run(["cat", f"/sys/class/net/{interface}/ifindex"]).stdout)


def flags(wires: Wires, port: str) -> set[str]:
    name, interface = port.split("/")
    machine = wires.switches[name].machine if name in wires.switches else wires._lab.nodes[name]
    return set(json.loads(machine.run(["ip", "-j", "link", "show", interface]).stdout)[0]["flags"])


def test_every_switch_hears_its_neighbours(wires: Wires) -> None:
    for name, switch in wires.switches.items():
        heard = switch.heard()
        assert {end.split("/")[0] for end in heard.values()} == PLAN.neighbours(name)
        assert all(wires.far_end(f"{name}/{port}") == end for port, end in heard.items())


def test_what_a_switch_says_of_itself(wires: Wires) -> None:
    shown = json.loads(wires.switches["spine-1"].lldpcli("-f", "json0", "show", "neighbors"))
    of_leaf = next(one for one in shown["lldp"][0]["interface"] if one["name"] == "swp1")
    (chassis,), (port,) = of_leaf["chassis"], of_leaf["port"]
    leaf = PLAN.switch("leaf-a1")
    assert (chassis["id"][0]["type"], chassis["id"][0]["value"]) == ("mac", leaf.chassis_mac)
    assert (port["id"][0]["type"], port["id"][0]["value"]) == ("ifname", "swp15")
    assert chassis["mgmt-ip"][0]["value"] == wires.switches["leaf-a1"].machine.ip
    assert chassis["descr"][0]["value"] == "hyperscout lab leaf"
    enabled = {one["type"] for one in chassis["capability"] if one["enabled"]}
    assert enabled == {"Bridge", "Router"}


@pytest.mark.parametrize(("rail", "leaf"), [("rail0", b"leaf-b1"), ("rail1", b"leaf-b2")])
def test_a_node_hears_its_leaf_and_no_device_behind_it(
    lab: BareLab, wires: Wires, rail: str, leaf: bytes
) -> None:
    heard = frames(lab, "node5", rail, 2.5)
    assert heard
    assert all(frame[12:14] == b"\x88\xcc" and leaf in frame and b"swp2" in frame for frame in heard)


def test_nodes_reach_each_other_on_both_rails(lab: BareLab, wires: Wires) -> None:
    assert pings(lab, "node1", "10.88.0.3")
    assert pings(lab, "node1", "10.88.0.6")
    assert pings(lab, "node4", "10.88.1.2")


@pytest.mark.parametrize("port", ["node2/rail0", "leaf-a1/swp2", "leaf-a1/swp15"])
def test_a_cable_pulled_and_plugged(lab: BareLab, wires: Wires, port: str) -> None:
    ends = (port, wires.far_end(port))
    assert [wires.carrier(end) for end in ends] == [True, True]
    wires.unplug(port)
    assert [wires.carrier(end) for end in ends] == [False, False]
    assert all("UP" in flags(wires, end) for end in ends)
    wires.unplug(port)  # again changes nothing
    wires.plug(ends[1])
    assert [wires.carrier(end) for end in ends] == [True, True]


def test_switches_forget_an_unplugged_neighbour(wires: Wires) -> None:
    leaf, spine = wires.switches["leaf-b2"], wires.switches["spine-2"]
    wires.unplug("leaf-b2/swp16")
    until_seen(lambda: "swp16" not in leaf.heard() and "swp4" not in spine.heard(), leaf.heard)
    wires.plug("leaf-b2/swp16")
    until_seen(lambda: "swp16" in leaf.heard() and "swp4" in spine.heard(), leaf.heard)


@pytest.mark.parametrize("to", ["leaf-b1/swp20", "leaf-b1/swp31"], ids=["a free port", "a port made for it"])
def test_a_moved_cable(lab: BareLab, wires: Wires, to: str) -> None:
    home = wires.far_end("node1/rail0")
    before = index_of(lab, "node1", "rail0")
    wires.move("node1/rail0", to)
    try:
        assert wires.far_end("node1/rail0") == to
        assert [wires.carrier(end) for end in ("node1/rail0", to, home)] == [True, True, False]
        assert index_of(lab, "node1", "rail0") == before
        heard = frames(lab, "node1", "rail0", 2.5)
        assert heard
        assert all(b"leaf-b1" in frame and to.split("/")[1].encode() in frame for frame in heard)
        assert pings(lab, "node1", "10.88.0.3")
    finally:
        wires.move("node1/rail0", home)
    assert [wires.carrier(end) for end in ("node1/rail0", to, home)] == [True, False, True]
    assert all(b"leaf-a1" in frame for frame in frames(lab, "node1", "rail0", 1.5))


def test_a_node_dies_and_comes_back(lab: BareLab, wires: Wires) -> None:
    lab.kill_node("node3")
    wires.disconnect("node3")
    assert [wires.carrier(f"leaf-a{n}/swp3") for n in (1, 2)] == [False, False]
    lab.add_node("node3")
    wires.connect("node3")
    assert [wires.carrier(f"leaf-a{n}/swp3") for n in (1, 2)] == [True, True]
    assert pings(lab, "node3", "10.88.1.6")


def test_a_cable_that_was_out_stays_out_while_its_node_is_away(lab: BareLab, wires: Wires) -> None:
    wires.unplug("node3/rail1")
    lab.kill_node("node3")
    wires.disconnect("node3")
    lab.add_node("node3")
    wires.connect("node3")
    assert [wires.carrier(f"node3/rail{n}") for n in (0, 1)] == [True, False]
    wires.plug("node3/rail1")
    assert wires.carrier("node3/rail1")


def test_a_new_node(lab: BareLab, wires: Wires) -> None:
    assert [wires.carrier(f"leaf-a{n}/swp4") for n in (1, 2)] == [False, False]
    lab.add_node("node7")
    wires.connect("node7")
    assert [wires.carrier(f"leaf-a{n}/swp4") for n in (1, 2)] == [True, True]
    assert pings(lab, "node7", "10.88.0.4")


def test_another_process_finds_the_wires_as_they_are(lab: BareLab, wires: Wires) -> None:
    wires.unplug("node4/rail1")
    other = Wires.attach(lab, lab.machines, PLAN)
    assert other.far_end("node4/rail1") == "leaf-b2/swp1"
    other.plug("node4/rail1")
    assert wires.carrier("leaf-b2/swp1")
    other.unplug("node1/rail0")
    assert wires.carrier("node1/rail0") is False
    other.plug("node1/rail0")
    wires.unplug("node4/rail1")
    wires.plug("node4/rail1")
    with pytest.raises(CableError, match="there are no wires"):
        Wires.attach(lab, lab.nodes, PLAN)
    assert other.switches["leaf-a1"].heard() == wires.switches["leaf-a1"].heard()


def test_a_switch_loses_its_power(wires: Wires) -> None:
    network = wires.switches["spine-2"].machine.run(["readlink", "/proc/self/ns/net"]).stdout.strip()
    assert runs_in(network, "lldpd")
    wires.down_switch("spine-2")
    assert not runs_in(network, "lldpd")
    assert not any(wires.carrier(f"leaf-{leaf}/swp16") for leaf in ("a1", "a2", "b1", "b2"))
    until_seen(lambda: wires.switches["leaf-a1"].heard().keys() == {"swp15"}, wires.switches["leaf-a1"].heard)
    wires.up_switch("spine-2")
    wires.await_lldp()


@pytest.mark.parametrize(
    ("do", "says"),
    [
        (lambda wires: wires.unplug("node1/rail9"), "node1/rail9 has no cable"),
        (lambda wires: wires.unplug("leaf-a1/swp9"), "leaf-a1/swp9 has no cable"),
        (lambda wires: wires.panel.connect(("node1/rail0", "leaf-a1/swp9")), "has a cable already"),
        (
            lambda wires: wires.panel.connect(("leaf-b1/swp9", "leaf-a1/swp77")),
            "there is no port leaf-a1/swp77",
        ),
    ],
)
def test_a_mistake_is_told(wires: Wires, do: Callable[[Wires], None], says: str) -> None:
    with pytest.raises(CableError, match=says):
        do(wires)


def test_agents_on_switches_tell_a_collector_of_the_cables(lab: BareLab, wires: Wires) -> None:
    """By mTLS, as each its own switch; they end when told."""
    require_real("openssl")
    authority = Authority(lab.folder / "pki")
    name = "collector.test"
    served = authority.issue("collector", f"/CN={name}", san=f"DNS:{name}")
    reader = authority.issue("reader", "/CN=reader", san="URI:hyperscout://reader/test")
    where = "10.77.0.1:50054"
    config = lab.folder / "collector.json"
    config.write_text(
        json.dumps(
            {
                "listen": "",
                "http_listen": "",
                "rest_listen": "",
                "mtls_listen": where,
                "tls_cert": str(served.cert),
                "tls_key": str(served.key),
                "tls_client_ca": str(authority.cert),
                "data_dir": str(lab.folder / "data"),
            }
        )
    )
    log = lab.folder / "collector.log"
    lab.popen([HYPERSCOUT, "collector", "--config", config], log)
    until_seen(lambda: b"listens on" in log.read_bytes(), log.read_text)
    wires.agents_up(collectors=[where], ca=authority.cert, server_name=name, certificates=authority)
    ask = [HYPERSCOUT, "get", "links", "-o", "json", "--collector", where]
    ask += ["--tls-ca", authority.cert, "--tls-server-name", name]
    ask += ["--tls-cert", reader.cert, "--tls-key", reader.key]

    def links() -> set[frozenset[str]]:
        done = lab.run(ask, check=False)
        shown = json.loads(done.stdout) if done.returncode == 0 else []
        assert {source for link in shown for source in link["sources"]} <= {"switch"}
        return {frozenset(f"{link[end]['name']}/{link[end]['port']}" for end in "ab") for link in shown}

    wanted = {frozenset(c.ends) for c in PLAN.cables if c.a.startswith("leaf")}
    until_seen(lambda: links() == wanted, wires.switches["leaf-a1"].agent.tail)
    wires.agents_down()
    assert all(switch.agent is None for switch in wires.switches.values())
    config = str(lab.folder / "wires" / "leaf-a1.agent.yaml")
    until_seen(lambda: not any(config in command(pid) for pid in processes()), lambda: "an agent runs on")


def sweep(lab: BareLab, node: str) -> str:
    """What the agent in a pod on this node would see."""
    argv = ["unshare", "-m", "sh", "-c", POD, "sh", SWEEP, "-C", "mlx5_0", "-P", "1"]
    done = lab.nodes[node].run(argv, timeout_s=WAIT_S)
    assert not done.stderr.strip()
    return str(done.stdout)


def adapters(text: str) -> set[str]:
    lines = [line for line in text.splitlines() if line.startswith("Ca")]
    return {line.split('"')[3].split()[0] for line in lines}


def shows(lab: BareLab, node: str, path: str) -> str:
    return str(lab.nodes[node].run(["cat", f"{SYSFS}/mlx5_0/{path}"]).stdout.strip())


def test_every_node_sweeps_from_its_own_adapter(lab: BareLab, infiniband: InfinibandFabric) -> None:
    names = set(lab.nodes)
    for node in ("node1", "node6"):
        text = sweep(lab, node)
        assert adapters(text) == names
        assert text.count("\nSwitch") == 3
        assert f"Initiated from node {PLAN.node(node).ib_guid:016x}" in text
        assert shows(lab, node, "node_guid").replace(":", "") == f"{PLAN.node(node).ib_guid:016x}"
        assert shows(lab, node, "ports/1/state") == "4: ACTIVE"


def test_an_infiniband_cable_pulled_and_plugged(lab: BareLab, infiniband: InfinibandFabric) -> None:
    infiniband.unplug("node2")
    assert adapters(sweep(lab, "node1")) == set(lab.nodes) - {"node2"}
    assert shows(lab, "node2", "ports/1/state") == "1: DOWN"
    infiniband.plug("node2")
    assert adapters(sweep(lab, "node1")) == set(lab.nodes)
    assert shows(lab, "node2", "ports/1/state") == "4: ACTIVE"


def test_an_infiniband_cable_moved(lab: BareLab, infiniband: InfinibandFabric) -> None:
    here, there = (PLAN.ib_leaf(unit).guid for unit in "ab")
    cable = '"S-{:016x}"[{}]'.format
    infiniband.move("node2", "ib-leaf-b")
    assert cable(there, 4) in sweep(lab, "node2")
    infiniband.move("node2", "ib-leaf-a")
    text = sweep(lab, "node2")
    assert cable(here, 2) in text
    assert cable(there, 4) not in text


def test_an_infiniband_node_dies_and_comes_back(lab: BareLab, infiniband: InfinibandFabric) -> None:
    lab.kill_node("node5")
    infiniband.disconnect("node5")
    assert "node5" not in adapters(sweep(lab, "node1"))
    lab.add_node("node5")
    infiniband.connect("node5")
    assert "node5" in adapters(sweep(lab, "node5"))


def test_an_infiniband_switch_loses_its_power(lab: BareLab, infiniband: InfinibandFabric) -> None:
    infiniband.down_switch("ib-spine")
    assert adapters(sweep(lab, "node4")) == {"node4", "node5", "node6"}
    infiniband.up_switch("ib-spine")
    assert adapters(sweep(lab, "node4")) == set(lab.nodes)


def test_a_console_that_refuses(infiniband: InfinibandFabric) -> None:
    with pytest.raises(InfinibandError, match="not found"):
        infiniband.console('Unlink "H-1234"[1]')


def test_nothing_is_left() -> None:
    require_real("netns", "lldpd", "ibsim")
    with bare_lab() as lab:
        lab.add_node("node1")
        wires = Wires(lab, PLAN)
        wires.up()
        InfinibandFabric(lab, PLAN).up()
        folder = str(lab.folder)
        inside = [pid for pid in processes() if folder in command(pid)]
        assert len(inside) > len(PLAN.switches)
    until_seen(lambda: not any(folder in command(pid) for pid in processes()), lambda: "something runs on")


def processes() -> list[Path]:
    return [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def runs_in(network: str, program: str) -> int:
    """How many processes of that name are in a network namespace, "net:[...]"."""
    found = 0
    for process in processes():
        with contextlib.suppress(OSError):
            found += (process / "comm").read_text().strip() == program and network == str(
                (process / "ns" / "net").readlink()
            )
    return found


def command(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""

"""A routed fabric out of network namespaces: hosts, and chains of router namespaces between them.

Each router that a packet passes costs it about 1.5 us a round trip, and nothing else tells two hosts apart:
what a fabric looks like that shows neither LLDP nor a subnet manager. Addresses are routed, IPv4 and IPv6,
without a bridge; host n has 10.1.n.2 and fd00:1:n::2 on `eth0`, the router above it the same with .1.

Names carry our process id and a number, so that two runs side by side do not meet; everything is taken away
at the end, whatever happened.
"""

import contextlib
import itertools
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from support.real import tool
from support.waiting import TIMEOUT_S

T = TypeVar("T")
INTERFACE = "eth0"
_numbers = itertools.count(1)


@dataclass
class Router:
    """`hops` routers in a row: this one, and the others on the way to `parent`."""

    name: str
    parent: "Router | None" = None
    hops: int = 1
    hosts: list["Host"] = field(default_factory=list)
    children: list["Router"] = field(default_factory=list)
    v4: str = ""  # one of its addresses, once it is built
    v6: str = ""

    def below(self) -> list["Host"]:
        return [*self.hosts, *(host for child in self.children for host in child.below())]


@dataclass
class Host:
    """`number` counts from 1. `v4`, `v6`: its addresses, "" where it has none."""

    name: str
    number: int
    router: Router
    v4: str
    v6: str

    @property
    def address(self) -> str:
        return self.v4 or self.v6


class Netlab:
    """Built by `build`, from routers and hosts that were declared before."""

    def __init__(self) -> None:
        self._tag = f"hsn{os.getpid()}x{next(_numbers)}"
        self._made: list[str] = []
        self.routers: list[Router] = []
        self.hosts: list[Host] = []

    def router(self, name: str, parent: Router | None = None, hops: int = 1) -> Router:
        made = Router(name, parent, hops)
        if parent is not None:
            parent.children.append(made)
        self.routers.append(made)
        return made

    def host(self, name: str, router: Router, *, v4: bool = True, v6: bool = True) -> Host:
        number = len(self.hosts) + 1
        made = Host(
            name, number, router, f"10.1.{number}.2" if v4 else "", f"fd00:1:{number:x}::2" if v6 else ""
        )
        router.hosts.append(made)
        self.hosts.append(made)
        return made

    def namespace(self, name: str) -> str:
        """Full name of a host's or router's namespace."""
        return f"{self._tag}-{name}"

    def distance(self, a: Host, b: Host) -> int:
        """Routers between two hosts."""
        up_a, up_b = _path(a.router), _path(b.router)
        while len(up_a) > 1 and len(up_b) > 1 and up_a[-2] is up_b[-2]:
            up_a.pop(), up_b.pop()
        return sum(one.hops for one in up_a[:-1]) + sum(one.hops for one in up_b[:-1]) + 1

    def tier(self, a: Host, b: Host) -> int:
        """1 = the same router, 2 = the same one above, ..."""
        up_a, up_b = _path(a.router), _path(b.router)
        return next(at for at, (x, y) in enumerate(zip(up_a, up_b, strict=True), 1) if x is y)

    def build(self) -> None:
        lines: dict[str, list[str]] = {}  # by namespace: what `ip -batch` does in it
        for host in self.hosts:
            lines[host.name] = []
        for router in self.routers:
            for part in _parts(router):
                lines[part] = []
        self._made = [self.namespace(name) for name in lines]
        _batch([f"netns add {name}" for name in self._made])
        for name in lines:
            self.inside(name, _at_once)
            lines[name].append("link set lo up")
        cables: list[tuple[str, str, str, str]] = []
        for host in self.hosts:
            cables.append((host.name, INTERFACE, host.router.name, f"h{host.number}"))
            _address(lines[host.name], INTERFACE, host.v4, host.v6)
            v4, v6 = (host.v4[:-1] + "1" if host.v4 else ""), (host.v6[:-1] + "1" if host.v6 else "")
            _address(lines[host.router.name], f"h{host.number}", v4, v6)
            _default(lines[host.name], v4, v6)
        number = itertools.count(1)
        for router in self.routers:
            if router.parent is None:
                continue
            way = [*_parts(router), router.parent.name]
            for low, high in itertools.pairwise(way):
                link = next(number)
                up, down = f"up{link}", f"dn{link}"
                cables.append((low, up, high, down))
                net4, net6 = f"10.2.{link}", f"fd00:2:{link:x}:"
                _address(lines[low], up, f"{net4}.2", f"{net6}:2")
                _address(lines[high], down, f"{net4}.1", f"{net6}:1")
                if high == router.parent.name:
                    router.parent.v4, router.parent.v6 = f"{net4}.1", f"{net6}:1"
                _default(lines[low], f"{net4}.1", f"{net6}:1")
                for host in router.below():
                    lines[high].append(f"route add 10.1.{host.number}.0/24 via {net4}.2")
                    lines[high].append(f"route add fd00:1:{host.number:x}::/64 via {net6}:2")
        for low, up, high, down in cables:
            there = self.namespace(high)
            _batch([f"link add {up} type veth peer name {down} netns {there}"], self.namespace(low))
        for name, todo in lines.items():
            _batch(sorted(todo, key=_order), self.namespace(name))
        routers = [part for router in self.routers for part in _parts(router)]
        for name in routers:
            self.inside(name, _forward)

    def inside(self, name: str, work: Callable[[], T]) -> T:
        """Call `work` in a thread inside a namespace. The threads and sockets that it starts stay there."""
        import ctypes

        found: list[T] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                with (Path("/run/netns") / self.namespace(name)).open() as there:
                    if ctypes.CDLL(None, use_errno=True).setns(there.fileno(), 0) != 0:
                        raise OSError(ctypes.get_errno(), "setns")
                found.append(work())
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join(TIMEOUT_S)
        if failed:
            raise failed[0]
        return found[0]

    def command(self, name: str, *argv: str | Path) -> list[str]:
        """A command line that runs in a namespace."""
        return [str(tool("ip")), "netns", "exec", self.namespace(name), *(str(one) for one in argv)]

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):
            _batch([f"netns del {name}" for name in self._made], force=True)


@contextmanager
def netlab(declare: Callable[[Netlab], None]) -> Iterator[Netlab]:
    """A lab that is taken away at the end, also when it could not be built to its end."""
    lab = Netlab()
    try:
        declare(lab)
        lab.build()
        yield lab
    finally:
        lab.close()


def two_tiers(lab: Netlab, leaves: int = 3, hosts: int = 4, hops: int = 4) -> None:
    """A spine over leaves, 1 and 9 routers apart; the last host has IPv6 alone."""
    spine = lab.router("spine")
    for leaf in range(leaves):
        router = lab.router(f"leaf{leaf}", spine, hops)
        for host in range(hosts):
            last = (leaf, host) == (leaves - 1, hosts - 1)
            lab.host(f"h{leaf}{host}", router, v4=not last)


def three_tiers(
    lab: Netlab, pods: int = 2, leaves: int = 2, hosts: int = 3, hops: tuple[int, int] = (4, 12)
) -> None:
    """A core over pods over leaves: 1, 9 and 33 routers apart. A host that is slow for a while sees others
    at twice the distance, so tiers are farther apart than that."""
    core = lab.router("core")
    for pod in range(pods):
        spine = lab.router(f"pod{pod}", core, hops[1])
        for leaf in range(leaves):
            router = lab.router(f"leaf{pod}{leaf}", spine, hops[0])
            for host in range(hosts):
                lab.host(f"h{pod}{leaf}{host}", router)


def _parts(router: Router) -> list[str]:
    """Names of the namespaces from this router up to, and without, its parent."""
    return [router.name, *(f"{router.name}-{at}" for at in range(1, router.hops))]


def _path(router: Router) -> list[Router]:
    return [router, *(_path(router.parent) if router.parent else ())]


def _address(lines: list[str], interface: str, v4: str, v6: str) -> None:
    if v4:
        lines.append(f"address add {v4}/24 dev {interface}")
    if v6:
        lines.append(f"address add {v6}/64 dev {interface} nodad")
    lines.append(f"link set {interface} up")


def _default(lines: list[str], v4: str, v6: str) -> None:
    if v4:
        lines.append(f"route add default via {v4}")
    if v6:
        lines.append(f"route add default via {v6}")


def _order(line: str) -> int:
    """Addresses, then links, then routes, which need both."""
    return 2 if " add " in line and "route" in line else 1 if line.startswith("link set") else 0


def _at_once() -> None:
    """No waiting for duplicates of link-local addresses: a router cannot ask for neighbours before."""
    for name in ("all", "default"):
        (Path("/proc/sys/net/ipv6/conf") / name / "accept_dad").write_text("0")
        (Path("/proc/sys/net/ipv6/conf") / name / "dad_transmits").write_text("0")


def _forward() -> None:
    for name in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        (Path("/proc/sys/net") / name).write_text("1")


def _batch(lines: Sequence[str], namespace: str = "", *, force: bool = False) -> None:
    argv = [
        str(tool("ip") or "ip"),
        *(("-n", namespace) if namespace else ()),
        *(("-force",) if force else ()),
    ]
    done = subprocess.run(
        [*argv, "-batch", "-"],
        input="\n".join(lines).encode(),
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{namespace}: {done.stderr.decode(errors='replace').strip()}")

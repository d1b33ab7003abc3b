"""Real LLDP: lldpd in network namespaces of this test's own, joined by veth.

Names carry our process id and a number, so that two runs side by side do not meet; everything is taken
away at the end, whatever happened.
"""

import contextlib
import itertools
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.lldpd import by_port, configuration, entries, wait_for

from support.real import tool
from support.waiting import TIMEOUT_S

# A line of a switch's configuration file: without it lldpd announces itself as a host.
ROUTER = "configure system capabilities enabled bridge,router"
_numbers = itertools.count(1)


def run(*argv: str | Path) -> str:
    """Run a tool to its end; what it printed. Fails with what it complained about."""
    done = subprocess.run([str(arg) for arg in argv], capture_output=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{argv}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode()


def ip(*arguments: str) -> str:
    return run(tool("ip") or "ip", *arguments)


@dataclass
class Daemon:
    """One lldpd that runs."""

    namespace: str
    socket: Path
    process: subprocess.Popen[bytes]

    def ctl(self) -> list[str]:
        """`lldpctl` for this daemon, ready for `-f json0`."""
        return [str(tool("lldpctl")), "-u", str(self.socket)]

    def view(self) -> bytes:
        """What `lldpctl -f json0` prints."""
        return run(*self.ctl(), "-f", "json0").encode()

    def await_interfaces(self, names: Sequence[str]) -> None:
        """Wait until lldpd answers and lists all of them."""

        def missing() -> set[str]:
            return set(names) - set(by_port(self._show("interfaces")))

        self._until(lambda: not missing(), lambda: f"does not list {missing()}")

    def await_neighbours(self, count: int, again: Callable[[], None] = lambda: None) -> None:
        """Wait until lldpd hears so many. `again` runs before each look, to repeat injected frames."""

        def heard() -> int:
            again()
            return len(entries(self._show("neighbors")))

        self._until(lambda: heard() >= count, lambda: f"hears {heard()} neighbours, not {count}")

    def _show(self, what: str) -> str:
        """An answer of lldpcli in json0; "" while lldpd does not answer yet."""
        with contextlib.suppress(RuntimeError):
            return run(tool("lldpcli") or "lldpcli", "-u", self.socket, "-f", "json0", "show", what)
        return ""

    def _until(self, done: Callable[[], bool], trouble: Callable[[], str]) -> None:
        wait_for(
            done,
            lambda: self.process.poll() is None,
            lambda: f"lldpd in {self.namespace} {trouble()}: {self._show('statistics')}",
        )

    def stop(self) -> None:
        """End it: it says goodbye on its ports."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        if self.process.poll() is None:
            self.kill()

    def kill(self) -> None:
        """End it without a goodbye, with its helper process."""
        helpers = _children(self.process.pid)
        self.process.kill()
        self.process.wait(10)
        for pid in helpers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)


class Lab:
    """Namespaces, veth between them, and daemons in them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tag = f"hs{os.getpid()}x{next(_numbers)}"
        self._namespaces: dict[str, str] = {}
        self._daemons: list[Daemon] = []
        self._mounts: list[Path] = []

    def namespace(self, name: str) -> str:
        """The full name of a namespace, made when it is first asked for."""
        if name not in self._namespaces:
            full = f"{self._tag}-{name}"
            ip("netns", "add", full)
            self._namespaces[name] = full
        return self._namespaces[name]

    def cable(self, a: tuple[str, str], b: tuple[str, str]) -> None:
        """A veth from (namespace, interface) to (namespace, interface), both up."""
        here, there = self.namespace(a[0]), self.namespace(b[0])
        ip("-n", here, "link", "add", a[1], "type", "veth", "peer", "name", b[1], "netns", there)
        ends = ((here, a[1]), (there, b[1]))
        for namespace, name in ends:
            ip("-n", namespace, "link", "set", name, "up")
        # The kernel reports the carrier a moment later.
        give_up_s = time.monotonic() + TIMEOUT_S
        while not all("state UP" in ip("-n", namespace, "link", "show", name) for namespace, name in ends):
            if time.monotonic() > give_up_s:
                raise RuntimeError(f"the cable {a} to {b} does not come up")
            time.sleep(0.02)

    def link_set(self, end: tuple[str, str], state: str) -> None:
        ip("-n", self.namespace(end[0]), "link", "set", end[1], state)

    def lldpd(
        self, name: str, interfaces: Sequence[str], *config: str, ttl: tuple[int, int] = (1, 30)
    ) -> Daemon:
        """Start lldpd in a namespace.

        `config`: further lines of its configuration file. `ttl`: seconds between two frames, and how many of
        these a TTL is.
        """
        namespace = self.namespace(name)
        control = self._folder / f"{namespace}-{len(self._daemons)}.sock"
        conf = self._folder / f"{namespace}-{len(self._daemons)}.conf"
        conf.write_text(configuration(name, *ttl, "configure lldp portidsubtype ifname", *config))
        argv = [tool("ip"), "netns", "exec", namespace, tool("lldpd"), "-d", "-u", control, "-O", conf]
        process = subprocess.Popen(
            [str(arg) for arg in (*argv, "-C", ",".join(interfaces), "-I", ",".join(interfaces))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        daemon = Daemon(namespace, control, process)
        self._daemons.append(daemon)
        daemon.await_interfaces(interfaces)
        return daemon

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """The calling thread is in the namespace; sockets that are opened here stay there."""
        import ctypes

        setns = ctypes.CDLL(None, use_errno=True).setns
        with (
            Path("/proc/thread-self/ns/net").open() as home,
            (Path("/run/netns") / self.namespace(name)).open() as there,
        ):
            if setns(there.fileno(), 0) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            try:
                yield
            finally:
                setns(home.fileno(), 0)

    def inject(self, end: tuple[str, str], *frames: bytes) -> None:
        """Put frames on the wire from an interface."""
        with self.inside(end[0]), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
            sender.bind((end[1], 0))
            for frame in frames:
                sender.send(frame)

    def sysfs(self, name: str) -> Path:
        """A sysfs that shows the namespace's interfaces (/sys shows those of the process that mounted it)."""
        folder = self._folder / f"sys-{name}"
        folder.mkdir()
        with self.inside(name):
            run("mount", "-t", "sysfs", "sysfs", folder)
        self._mounts.append(folder)
        return folder

    def close(self) -> None:
        for folder in self._mounts:
            run("umount", folder)
        for daemon in self._daemons:
            if daemon.process.poll() is None:
                daemon.stop()
        for namespace in self._namespaces.values():
            with contextlib.suppress(RuntimeError):
                ip("netns", "del", namespace)


@contextmanager
def lldp_lab() -> Iterator[Lab]:
    """A lab that is taken away at the end."""
    # pytest's own folders are closed to lldpd, most of which runs as a user without rights.
    with tempfile.TemporaryDirectory(prefix="hyperscout-lldp-") as folder:
        Path(folder).chmod(0o711)
        lab = Lab(Path(folder))
        try:
            yield lab
        finally:
            lab.close()


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if stat.read_text().rpartition(")")[2].split()[1] == str(pid):
                found.append(int(stat.parent.name))
    return found

"""Hears LLDP frames on physical ports and hands them to the agent: the one part that needs CAP_NET_RAW.

It is a process of its own, small enough to be read in one go, and made of the standard library alone. It
understands nothing of what it hears, and accepts no input but frames: the agent holds the socket, the
listener connects to it and only ever sends.
"""

import argparse
import contextlib
import re
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from hyperscout_agent.lldp.messages import MAX_FRAME_BYTES, Heard, encode
from hyperscout_agent.runtime.ports import PatternError, compiled, physical_ports

# "Nearest bridge": bridges do not forward this group, so the sender is at the other end of the cable
# (802.1AB 7.1).
GROUP = bytes.fromhex("0180c200000e")
_ETHERTYPE = 0x88CC
_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, _PACKET_MR_MULTICAST = 263, 1, 0
_MEMBERSHIP = struct.Struct("=IHH8s")  # packet_mreq: index, type, address length, address
_HEADER_BYTES = 14
_NS = 1_000_000_000  # nanoseconds in a second; hyperscout_runtime.units is not in the standard library
_RESCAN_S = 5.0
_RECONNECT_S = 1.0
# A neighbour sends every 30 s, or every second in a fast start. The listener pauses a port that receives more
# than this for `_PENALTY_S`, and the kernel drops the rest.
_BURST = 16
_PENALTY_S = 5.0
_SENDERS_PER_PORT = 16
_BUFFER_BYTES = 128 * 1024
_MAX_SKIPPED = 4096  # more than the buffer holds


class Hearing:
    """The last frame of each sender on one port."""

    def __init__(self, port: str) -> None:
        self._port = port
        self._last: dict[bytes, tuple[bytes, int]] = {}  # sender -> frame, heard at (ns)
        self._budget = float(_BURST)
        self._budget_at_s = 0.0

    def hear(self, frame: bytes, now_ns: int) -> Heard | None:
        """Record one frame. Returns None for a frame of another group or an invalid size."""
        if not _HEADER_BYTES < len(frame) <= MAX_FRAME_BYTES or frame[:6] != GROUP:
            return None
        sender = frame[6:12]
        before = self._last.pop(sender, None)
        if before is None and len(self._last) >= _SENDERS_PER_PORT:
            del self._last[next(iter(self._last))]  # the sender that was silent for longest
        self._last[sender] = (frame, now_ns)
        same = before is not None and before[0] == frame
        return Heard(self._port, sender, now_ns, None if same else frame)

    def within_budget(self, now_s: float) -> bool:
        """Count one frame. Returns False when the port exceeds its budget."""
        gained = (now_s - self._budget_at_s) * _BURST / _PENALTY_S
        self._budget = min(_BURST, self._budget + gained) - 1
        self._budget_at_s = now_s
        return self._budget > 0

    def so_far(self) -> list[Heard]:
        """Return the last frame of each sender, for an agent that has just connected."""
        return [Heard(self._port, sender, at_ns, frame) for sender, (frame, at_ns) in self._last.items()]


class Port:
    """The raw socket of one port."""

    def __init__(self, name: str, index: int) -> None:
        self.name = name
        self.index = index
        self.hearing = Hearing(name)
        self.deaf_until_s = 0.0
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        try:
            self.socket.setblocking(False)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            membership = _MEMBERSHIP.pack(index, _PACKET_MR_MULTICAST, len(GROUP), GROUP)
            self.socket.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
            self.socket.bind((name, _ETHERTYPE))
        except OSError:
            self.socket.close()
            raise

    def is_deaf(self) -> bool:
        """Whether the port was removed while its socket was open. A port of that name is now another port."""
        return not self.socket.getsockname()[0]

    def skip(self) -> None:
        """Drop the frames in the socket's buffer."""
        with contextlib.suppress(OSError):
            for _ in range(_MAX_SKIPPED):
                self.socket.recv(1)


class Listener:
    """Listens on all ports and sends frames to the agent's socket. `clock`: CLOCK_MONOTONIC in ns."""

    def __init__(
        self,
        socket_path: Path,
        sysfs: Path,
        pattern: re.Pattern[str] | None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._socket_path = socket_path
        self._sysfs = sysfs
        self._pattern = pattern
        self._clock = clock
        self._ports: dict[str, Port] = {}
        self._selector = selectors.DefaultSelector()
        self._agent: socket.socket | None = None
        self._rescan_at_s = 0.0
        self._connect_at_s = 0.0
        self._refused: set[str] = set()
        self.ended = False

    def run(self) -> None:
        """Listen until a signal sets `ended`."""
        while not self.ended:
            now_s = self._clock() / _NS
            if now_s >= self._rescan_at_s:
                self._rescan()
                self._rescan_at_s = now_s + _RESCAN_S
            if self._agent is None and now_s >= self._connect_at_s:
                self._connect()
                self._connect_at_s = now_s + _RECONNECT_S
            for port in self._ports.values():
                if 0 < port.deaf_until_s <= now_s:
                    port.deaf_until_s = 0.0
                    port.skip()  # the buffered frames belong to the storm
                    self._selector.register(port.socket, selectors.EVENT_READ, port)
            for key, _ in self._selector.select(timeout=_RECONNECT_S):
                if isinstance(key.data, Port):
                    self._read(key.data)
                else:
                    self._disconnect()  # the agent sends nothing, so a readable socket means that it closed

    def _rescan(self) -> None:
        """Open sockets for new ports and close those of removed ports. A name may belong to a new port."""
        present = {}
        for name in physical_ports(self._sysfs, self._pattern):
            with contextlib.suppress(OSError):
                present[name] = socket.if_nametoindex(name)
        for name, port in list(self._ports.items()):
            if present.get(name) != port.index or port.is_deaf():
                self._close(port)
        for name, index in present.items():
            if name in self._ports:
                continue
            try:
                port = self._ports[name] = Port(name, index)
            except PermissionError as error:
                raise SystemExit(f"{name}: {error.strerror}: listening needs root or CAP_NET_RAW") from error
            except OSError as error:
                if name not in self._refused:
                    self._refused.add(name)
                    print(f"{name}: not listening: {error}", file=sys.stderr, flush=True)  # noqa: T201
                continue
            self._selector.register(port.socket, selectors.EVENT_READ, port)

    def _connect(self) -> None:
        """Connect to the agent and send the last frame of each sender, so that its restart loses nothing."""
        agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            agent.connect(str(self._socket_path))
        except OSError:
            agent.close()
            return
        agent.setblocking(False)
        self._agent = agent
        self._selector.register(agent, selectors.EVENT_READ)
        for port in self._ports.values():
            for heard in port.hearing.so_far():
                self._send(heard)

    def _disconnect(self) -> None:
        if self._agent is not None:
            self._selector.unregister(self._agent)
            self._agent.close()
            self._agent = None

    def _close(self, port: Port) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(port.socket)
        port.socket.close()
        del self._ports[port.name]

    def _read(self, port: Port) -> None:
        now_ns = self._clock()
        if not port.hearing.within_budget(now_ns / _NS):
            self._selector.unregister(port.socket)
            port.deaf_until_s = now_ns / _NS + _PENALTY_S
        try:
            frame = port.socket.recv(MAX_FRAME_BYTES + 1)
        except BlockingIOError:
            return
        except OSError:
            # The port is down (the kernel reports ENETDOWN once) or removed. The next rescan finds out which.
            return
        heard = port.hearing.hear(frame, now_ns)
        if heard is not None:
            self._send(heard)

    def _send(self, heard: Heard) -> None:
        if self._agent is None:
            return
        try:
            self._agent.send(encode(heard))
        except OSError:
            # The agent does not read, or has ended. It receives everything again when it reconnects.
            self._disconnect()


def main(arguments: list[str] | None = None) -> int:
    """Run the command `hyperscout agent lldp-listener`. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="hyperscout agent lldp-listener", description=__doc__)
    parser.add_argument(
        "--socket", type=Path, required=True, help="the agent's socket, to which frames are sent"
    )
    parser.add_argument(
        "--ports", metavar="REGEX", help="names of ports to listen on (default: the physical ones)"
    )
    parser.add_argument("--sysfs", type=Path, default=Path("/sys"), help="where sysfs is mounted")
    options = parser.parse_args(arguments)
    try:
        listener = Listener(options.socket, options.sysfs, compiled(options.ports))
    except PatternError as error:
        parser.error(str(error))

    def end(_signal: int, _frame: object) -> None:
        listener.ended = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    listener.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Reads the kernel's time stamps of sent and received datagrams.

Source: Linux, Documentation/networking/timestamping. Software stamps need no privileges and no special
hardware. They exclude this process's own delays, which are many times a switch hop. The stamp of a sent
datagram arrives through the socket's error queue, with the number of the send. All stamps are
CLOCK_REALTIME in nanoseconds; 0 means that the kernel gave no stamp.
"""

import errno
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from hyperscout_runtime.units import NS

_SO_TIMESTAMPING = 37
_TX_SOFTWARE, _RX_SOFTWARE, _SOFTWARE = 1 << 1, 1 << 3, 1 << 4
_OPT_ID, _OPT_TSONLY = 1 << 7, 1 << 11
_FLAGS = _TX_SOFTWARE | _RX_SOFTWARE | _SOFTWARE | _OPT_ID | _OPT_TSONLY
_TIMESPECS = struct.Struct("@6l")  # scm_timestamping: software, unused, hardware
_EXTENDED_ERROR = struct.Struct("=IBBBBII")  # sock_extended_err: errno, origin, type, code, pad, info, data
_ORIGIN_TIMESTAMPING = 4
_ERROR_LEVELS = frozenset({(socket.IPPROTO_IP, 11), (socket.IPPROTO_IPV6, 25)})  # IP_RECVERR, IPV6_RECVERR
_ANCILLARY_BYTES = 512
_RECEIVE_BYTES = 256  # a valid packet has 60 bytes; a longer one is cut and rejected for its length
_MAX_SENT = 256
_BIND_TO_DEVICE = 25


@dataclass(frozen=True, slots=True)
class Datagram:
    data: bytes
    source: str
    source_port: int
    received_ns: int


def open_socket(address: str, port: int, interface: str) -> socket.socket:
    """Open a non-blocking UDP socket on this address, bound to the interface if the kernel permits it.

    Raises OSError.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_DGRAM)
    try:
        made.setblocking(False)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            # Since Linux 5.7 this needs no privileges. On older kernels the address alone is bound.
            made.setsockopt(socket.SOL_SOCKET, _BIND_TO_DEVICE, interface.encode() + b"\0")
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENODEV, errno.ENOPROTOOPT):
                raise
        made.bind((address, port))
    except BaseException:
        made.close()
        raise
    return made


def enable(ours: socket.socket) -> bool:
    """Enable kernel stamps for sent and received datagrams and number the sends from 0.

    Returns False when the kernel does not support it.
    """
    try:
        ours.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, 0)
        ours.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, _FLAGS)
    except OSError:
        return False
    return True


def receive(ours: socket.socket) -> Datagram | None:
    """Return the next datagram, None when there is none. Raises OSError when the socket is unusable."""
    try:
        data, ancillary, _, source = ours.recvmsg(_RECEIVE_BYTES, _ANCILLARY_BYTES)
    except (BlockingIOError, InterruptedError, ConnectionRefusedError):
        return None
    return Datagram(data, str(source[0]), int(source[1]), stamp_in(ancillary))


def sent_stamps(ours: socket.socket) -> list[tuple[int, int]]:
    """Return (number of the send, time of sending in ns) for the stamps in the error queue."""
    found = []
    for _ in range(_MAX_SENT):
        try:
            _, ancillary, _, _ = ours.recvmsg(1, _ANCILLARY_BYTES, socket.MSG_ERRQUEUE)
        except OSError:
            break
        number, stamp_ns = number_in(ancillary), stamp_in(ancillary)
        if number is not None and stamp_ns:
            found.append((number, stamp_ns))
    return found


def stamp_in(ancillary: Iterable[tuple[int, int, bytes]]) -> int:
    """Return the software stamp in control messages, in ns; 0 when there is none."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPING and len(data) >= _TIMESPECS.size:
            seconds, nanoseconds = _TIMESPECS.unpack_from(data)[:2]
            return int(seconds) * NS + int(nanoseconds)
    return 0


def number_in(ancillary: Iterable[tuple[int, int, bytes]]) -> int | None:
    """Return the number of the send that a stamp belongs to; None when there is no stamp."""
    for level, kind, data in ancillary:
        if (level, kind) in _ERROR_LEVELS and len(data) >= _EXTENDED_ERROR.size:
            _, origin, _, _, _, _, number = _EXTENDED_ERROR.unpack_from(data)
            if origin == _ORIGIN_TIMESTAMPING:
                return int(number)
    return None

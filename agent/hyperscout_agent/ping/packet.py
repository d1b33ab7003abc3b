"""The datagrams of the latency probe: 60 bytes each way, and only who holds the task's key can make one.

An answer is never larger than its ping. The keyed BLAKE2s (RFC 7693) over all that comes before it binds
kind, end, task, sequence and nonce: an answer cannot be made from a ping, nor one end's packet serve as the
other's.
"""

import hmac
import struct
from dataclasses import dataclass
from hashlib import blake2s

KEY_BYTES = 32
NONCE_BYTES = 8
PING, PONG, DONE = 1, 2, 3
# An answer tells how long the answers before it stayed with the responder: its own sending time is known only
# when it is gone. Several of them, so that a lost answer does not cost the sample before it too.
RESIDENCES = 4
MAX_RESIDENCE_NS = 2**32 - 1

# Pings that count come in groups of so many, close to each other, behind one that does not count.
GROUP = 2

_MAGIC = b"HsP1"
_BODY = struct.Struct(f"!4sBB2xQI{NONCE_BYTES}s{RESIDENCES}I")
_MAC_BYTES = 16
_PERSON = b"hs-ping1"
_TASK = struct.Struct("!8xQ")
PACKET_BYTES = _BODY.size + _MAC_BYTES
# What goes over the wire with it: Ethernet, IP and UDP headers.
WIRE_BYTES = {4: PACKET_BYTES + 14 + 20 + 8, 6: PACKET_BYTES + 14 + 40 + 8}


class PacketError(ValueError):
    """No packet of this key; the word says why."""


@dataclass(frozen=True, slots=True)
class Packet:
    """`first`: from the end that goes first. `residence_ns`: of the answers to `sequence` - 1, - 2, ...; 0
    = not known."""

    kind: int
    first: bool
    task_id: int
    sequence: int
    nonce: bytes = bytes(NONCE_BYTES)
    residence_ns: tuple[int, ...] = (0,) * RESIDENCES


def task_of(datagram: bytes) -> int | None:
    """Whose task it claims to be of, before any key is tried; None = no packet of ours."""
    if len(datagram) != PACKET_BYTES or not datagram.startswith(_MAGIC):
        return None
    task_id: int = _TASK.unpack_from(datagram)[0]
    return task_id


def packets_of(pings: int) -> int:
    """How many a burst sends: one looks for the peer, one wakes each group, one is the last."""
    return pings + -(-pings // GROUP) + 2


def pack(packet: Packet, key: bytes) -> bytes:
    """The datagram. A residence that does not fit is sent as not known."""
    fitting = (x if 0 < x <= MAX_RESIDENCE_NS else 0 for x in packet.residence_ns)
    body = _BODY.pack(
        _MAGIC, packet.kind, packet.first, packet.task_id, packet.sequence, packet.nonce, *fitting
    )
    return body + _mac(body, key)


def unpack(datagram: bytes, key: bytes) -> Packet:
    """Raises PacketError for anything that `pack` did not make with the same key."""
    if task_of(datagram) is None:
        raise PacketError("malformed")
    body = datagram[: _BODY.size]
    if not hmac.compare_digest(_mac(body, key), datagram[_BODY.size :]):
        raise PacketError("forged")
    _, kind, first, task_id, sequence, nonce, *residence_ns = _BODY.unpack(body)
    return Packet(kind, bool(first), task_id, sequence, nonce, tuple(residence_ns))


def _mac(body: bytes, key: bytes) -> bytes:
    return blake2s(body, key=key, digest_size=_MAC_BYTES, person=_PERSON).digest()

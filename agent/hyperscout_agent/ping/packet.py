"""Encodes the latency probe's datagrams: 60 bytes each way, authenticated with the task's key.

An answer is as large as its ping. A keyed BLAKE2s (RFC 7693) over all preceding fields covers kind, end,
task, sequence and nonce. A ping therefore cannot be turned into an answer, and a packet of one end is not
valid for the other end.
"""

import hmac
import struct
from dataclasses import dataclass
from hashlib import blake2s

KEY_BYTES = 32
NONCE_BYTES = 8
PING, PONG, DONE = 1, 2, 3
# An answer carries the residences of earlier answers, because its own sending time is known only after it was
# sent. It carries several, so that a lost answer does not cost the previous sample too.
RESIDENCES = 4
MAX_RESIDENCE_NS = 2**32 - 1

# Number of counted pings in a group. They follow one uncounted ping closely.
GROUP = 2

_MAGIC = b"HsP1"
_BODY = struct.Struct(f"!4sBB2xQI{NONCE_BYTES}s{RESIDENCES}I")
_MAC_BYTES = 16
_PERSON = b"hs-ping1"
_TASK = struct.Struct("!8xQ")
PACKET_BYTES = _BODY.size + _MAC_BYTES
# With Ethernet, IP and UDP headers, by IP version.
WIRE_BYTES = {4: PACKET_BYTES + 14 + 20 + 8, 6: PACKET_BYTES + 14 + 40 + 8}


class PacketError(ValueError):
    """The datagram is not a packet made with this key. The message is the reason."""


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet. `first`: the sender is the end that measures first.

    `residence_ns`: residences of the answers to `sequence` - 1, - 2 and so on; 0 = unknown.
    """

    kind: int
    first: bool
    task_id: int
    sequence: int
    nonce: bytes = bytes(NONCE_BYTES)
    residence_ns: tuple[int, ...] = (0,) * RESIDENCES


def task_of(datagram: bytes) -> int | None:
    """Return the unauthenticated task id of a datagram; None when size or magic number are wrong."""
    if len(datagram) != PACKET_BYTES or not datagram.startswith(_MAGIC):
        return None
    task_id: int = _TASK.unpack_from(datagram)[0]
    return task_id


def packets_of(pings: int) -> int:
    """Return the number of packets in a burst: one to find the peer, one to wake each group, and one last."""
    return pings + -(-pings // GROUP) + 2


def pack(packet: Packet, key: bytes) -> bytes:
    """Encode a packet. A residence that does not fit is sent as unknown (0)."""
    fitting = (x if 0 < x <= MAX_RESIDENCE_NS else 0 for x in packet.residence_ns)
    body = _BODY.pack(
        _MAGIC, packet.kind, packet.first, packet.task_id, packet.sequence, packet.nonce, *fitting
    )
    return body + _mac(body, key)


def unpack(datagram: bytes, key: bytes) -> Packet:
    """Decode a datagram. Raises PacketError if `pack` did not make it with the same key."""
    if task_of(datagram) is None:
        raise PacketError("malformed")
    body = datagram[: _BODY.size]
    if not hmac.compare_digest(_mac(body, key), datagram[_BODY.size :]):
        raise PacketError("forged")
    _, kind, first, task_id, sequence, nonce, *residence_ns = _BODY.unpack(body)
    return Packet(kind, bool(first), task_id, sequence, nonce, tuple(residence_ns))


def _mac(body: bytes, key: bytes) -> bytes:
    return blake2s(body, key=key, digest_size=_MAC_BYTES, person=_PERSON).digest()

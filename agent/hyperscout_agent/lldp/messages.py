"""Encodes the messages from the listener to the agent: one datagram of a SOCK_SEQPACKET socket each.

This module uses only the standard library, because the privileged listener imports it. FRAME carries a
frame that differs from the last one of the same sender on that port. AGAIN reports that the last frame
was received again.
"""

import struct
from dataclasses import dataclass

VERSION = 1
FRAME, AGAIN = 1, 2
MAX_FRAME_BYTES = 9216  # the largest jumbo frame that switches send
_MAX_NAME_BYTES = 64  # Linux allows 15
_HEADER = struct.Struct("!BBBxQ6s")  # version, kind, length of the name, heard at (ns), sender
MAX_MESSAGE_BYTES = _HEADER.size + _MAX_NAME_BYTES + MAX_FRAME_BYTES


class MessageError(ValueError):
    """The bytes are not a message of this protocol."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One received frame. `at_ns`: CLOCK_MONOTONIC, which all processes of a machine share.

    `frame` is None when it equals the last frame of this sender on this port.
    """

    port: str
    sender: bytes
    at_ns: int
    frame: bytes | None


def encode(heard: Heard) -> bytes:
    name = heard.port.encode()[:_MAX_NAME_BYTES]
    kind = AGAIN if heard.frame is None else FRAME
    header = _HEADER.pack(VERSION, kind, len(name), heard.at_ns, heard.sender)
    return header + name + (heard.frame or b"")


def decode(message: bytes) -> Heard:
    """Decode a message. Raises MessageError for invalid bytes, and no other exception."""
    if len(message) < _HEADER.size:
        raise MessageError(f"expected a message of at least {_HEADER.size} bytes, got {len(message)} bytes")
    version, kind, name_bytes, at_ns, sender = _HEADER.unpack_from(message)
    if version != VERSION:
        raise MessageError(
            f"version {version} of the protocol, this agent speaks {VERSION}: update both together"
        )
    name = message[_HEADER.size : _HEADER.size + name_bytes]
    frame = message[_HEADER.size + name_bytes :]
    if not 0 < name_bytes <= _MAX_NAME_BYTES or len(name) != name_bytes:
        raise MessageError(f"expected a port name of 1 to {_MAX_NAME_BYTES} bytes, got {name_bytes} bytes")
    if kind not in (FRAME, AGAIN) or (kind == AGAIN and frame) or len(frame) > MAX_FRAME_BYTES:
        raise MessageError(f"a message of kind {kind} with a frame of {len(frame)} bytes")
    try:
        port = name.decode()
    except UnicodeDecodeError as error:
        raise MessageError("a port name that is not UTF-8") from error
    return Heard(port, sender, at_ns, frame if kind == FRAME else None)

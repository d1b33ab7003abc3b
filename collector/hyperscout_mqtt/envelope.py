"""An outgoing message, and the version of all message schemas."""

import json
from dataclasses import dataclass
from typing import Any

SCHEMA_VERSION = "1"  # incremented when a reader of the previous version could misread a message


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message. `expiry_s`: how long the broker keeps it for absent subscribers; None means forever."""

    topic: str
    payload: bytes
    retain: bool = False
    expiry_s: int | None = None


def encoded(value: Any) -> bytes:
    """Return compact JSON in ASCII, which any reader can decode whatever characters names contain."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")

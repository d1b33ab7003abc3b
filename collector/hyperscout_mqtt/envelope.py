"""A message as it goes to the broker, and the version of all messages' schemas."""

import json
from dataclasses import dataclass
from typing import Any

SCHEMA_VERSION = "1"  # it grows when a reader of the version before could misread a message


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message. `expiry_s`: how long the broker keeps it for those who are away; None = for ever."""

    topic: str
    payload: bytes
    retain: bool = False
    expiry_s: int | None = None


def encoded(value: Any) -> bytes:
    """JSON in ASCII, without blanks: whatever names hold, any reader can take it."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")

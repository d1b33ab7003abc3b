"""Files that hold one secret: a community, a password, a token; mounted, and renewed in place.

One rule for all: one line of text, whose end does not count. No message holds any of it.
"""

from pathlib import Path

EMPTY, NO_TEXT = "empty", "not one line of text"


class SecretError(ValueError):
    """A file that holds no such thing. `reason`: EMPTY, NO_TEXT, or that it is too large."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.reason = reason


def read_secret(path: Path, most_bytes: int) -> str:
    """The secret. Raises SecretError, and OSError as `open` does."""
    with path.open("rb") as file:
        found = file.read(most_bytes + 2)
    found = found.rstrip(b"\r\n")
    if len(found) > most_bytes:
        raise SecretError(path, f"larger than {most_bytes} bytes")
    if not found:
        raise SecretError(path, EMPTY)
    try:
        text = found.decode()
    except UnicodeDecodeError:
        raise SecretError(path, NO_TEXT) from None  # its message would show some of it
    if not text.isprintable():
        raise SecretError(path, NO_TEXT)
    return text

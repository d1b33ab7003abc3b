"""Reads files with one secret (a community, a password, a token) that are mounted and renewed in place.

Every such file contains one line of text. Line ends after it are removed. Error messages contain no part
of the secret.
"""

from pathlib import Path

EMPTY, NO_TEXT = "empty", "not one line of text"


class SecretError(ValueError):
    """The file contains no valid secret. `reason`: EMPTY, NO_TEXT, or a text that gives the size limit."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.reason = reason


def read_secret(path: Path, most_bytes: int) -> str:
    """Return the secret, at most `most_bytes` long. Raises SecretError, and OSError from `open`."""
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
        raise SecretError(path, NO_TEXT) from None  # the original message would show a part of the secret
    if not text.isprintable():
        raise SecretError(path, NO_TEXT)
    return text

"""Formats exceptions as text for a status, a condition or an Event."""

_MAX_CHARS = 200


def described(error: BaseException) -> str:
    """Return an exception as one line of at most 200 characters that can be printed."""
    message = f"{type(error).__name__}: {error}"
    text = " ".join("".join(c if c.isprintable() else " " for c in message).split())
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 3] + "..."


class StartError(RuntimeError):
    """A process cannot start. The message contains what to change."""

"""Formats exceptions as text for a status, a condition or an Event, and chooses levels of log lines."""

import logging
from collections.abc import Iterable

_MAX_CHARS = 200
_MOST_SIMILAR = 3


def described(error: BaseException) -> str:
    """Return an exception as one line of at most 200 characters that can be printed."""
    message = f"{type(error).__name__}: {error}"
    text = " ".join("".join(c if c.isprintable() else " " for c in message).split())
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 3] + "..."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` with the most similar known name, "" when none is similar."""
    import difflib

    close = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def similar(name: str, known: Iterable[str]) -> list[str]:
    """Return names of machines that may be meant, the most likely first.

    First come those with the same first label, in any domain and cluster (`east/gpu-1`), then similar ones.
    """
    import difflib

    names = sorted(known)
    same = [other for other in names if _first_label(other) == _first_label(name)]
    close = difflib.get_close_matches(name, names, _MOST_SIMILAR, cutoff=0.8)
    return list(dict.fromkeys([*same, *close]))[:_MOST_SIMILAR]


def _first_label(name: str) -> str:
    return name.rpartition("/")[2].partition(".")[0]


def install_extra(extras: str = "") -> str:
    """Return the next step where a package is missing. `extras`: those that have it (`agent,snmp`)."""
    return f"run `pip install 'hyperscout{f'[{extras}]' if extras else ''}'` in this environment"


class StartError(RuntimeError):
    """A process cannot start. The message contains what to change."""


_CALM_S = 60.0  # LLDP neighbours announce themselves every 30 s, and another replica leads after 10 s


def failure_level(for_s: float, *, is_expected: bool) -> int:
    """Return the level of a log line about something that has not worked for `for_s` seconds.

    `is_expected`: a start, a rolling update or a change of the leader causes this. It is a warning if it
    lasts for a minute.
    """
    return logging.INFO if is_expected and for_s < _CALM_S else logging.WARNING

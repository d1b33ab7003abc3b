"""Decides which nodes run NCCL next, in configured windows and one pair at a time. Pure.

A window is "Sun 02:00-04:00" in UTC; commas separate several. "daily" is every day. An end before the
beginning is on the next day. In a window one pair represents each domain; the domain that waited longest is
first.
"""

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hyperscout_runtime.units import NS

if TYPE_CHECKING:
    from hyperscout_topology.topology import HyperNode

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY_S, _WEEK_S = 86_400, 7 * 86_400
_FIRST_DAY = 3  # 1970-01-01 was a Thursday
_MAX_WINDOWS = 16
_TEXT = re.compile(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun|daily) (\d\d):(\d\d)-(\d\d):(\d\d)")


@dataclass(frozen=True, slots=True)
class Window:
    """A weekly window. `begin_s`: seconds from Monday 00:00 UTC. It may reach into the next week."""

    begin_s: int
    length_s: int


def parse_windows(text: str) -> tuple[Window, ...]:
    """Parse windows; "" = none. Raises ValueError, which names the expected form."""
    found: list[Window] = []
    for part in (part.strip() for part in text.split(",")):
        if not part and not text.strip():
            continue
        match = _TEXT.fullmatch(part)
        if match is None:
            raise ValueError(
                f'{part!r} is no window: expected "Sun 02:00-04:00" or "daily 02:00-04:00" (UTC)'
            )
        begin_s, end_s = _time_s(match[2], match[3]), _time_s(match[4], match[5])
        length_s = (end_s - begin_s) % _DAY_S or _DAY_S
        days = range(7) if match[1] == "daily" else (_DAYS.index(match[1]),)
        found += [Window(day * _DAY_S + begin_s, length_s) for day in days]
    if len(found) > _MAX_WINDOWS:
        raise ValueError(f"{len(found)} windows: at most {_MAX_WINDOWS} a week")
    return tuple(found)


def _time_s(hours: str, minutes: str) -> int:
    if int(hours) > 24 or int(minutes) > 59 or (int(hours) == 24 and int(minutes)):
        raise ValueError(f"{hours}:{minutes} is no time of a day")
    return int(hours) * 3600 + int(minutes) * 60


@dataclass(frozen=True, slots=True)
class Open:
    """An open window. Unix ns."""

    since_ns: int
    until_ns: int


def open_window(windows: Sequence[Window], now_ns: int) -> Open | None:
    """Returns the window that is open now; of several, the one that closes last."""
    week_ns = (now_ns + _FIRST_DAY * _DAY_S * NS) % (_WEEK_S * NS)
    found: list[Open] = []
    for window in windows:
        since_ns = (week_ns - window.begin_s * NS) % (_WEEK_S * NS)
        if since_ns < window.length_s * NS:
            begin_ns = now_ns - since_ns
            found.append(Open(begin_ns, begin_ns + window.length_s * NS))
    return max(found, key=lambda one: one.until_ns, default=None)


def pairs_of_domains(hypernodes: "Sequence[HyperNode]", free: Set[str]) -> dict[str, tuple[str, str]]:
    """Returns two of the nodes that may run for each domain: in different children, where the domain has
    children.

    A domain with children has no pair if only one child has nodes that may run.
    """
    nodes_of = {h.name: h.nodes for h in hypernodes}
    first: dict[str, str] = {}  # first free node in the order of names, by domain
    found: dict[str, tuple[str, str]] = {}
    for h in hypernodes:
        first[h.name] = min((node for node in h.nodes if node in free), default="")
    for h in hypernodes:
        if h.children:
            ends = sorted(first[child] for child in h.children if child in nodes_of and first[child])
        else:
            ends = sorted(node for node in h.nodes if node in free)
        if len(ends) > 1:
            found[h.name] = ends[0], ends[1]
    return found


def next_pair(
    pairs: Mapping[str, tuple[str, str]], last_ns: Callable[[str, tuple[str, str]], int], since_ns: int
) -> tuple[str, tuple[str, str]] | None:
    """Returns the domain that waited longest, and its pair.

    `last_ns`: when it ran or was tried, Unix ns; 0 = never. Returns None if all of them ran or were tried
    since `since_ns`: once in a window suffices.
    """
    waiting = [
        (at_ns, name, pair) for name, pair in pairs.items() if (at_ns := last_ns(name, pair)) < since_ns
    ]
    if not waiting:
        return None
    _, name, pair = min(waiting)
    return name, pair

"""Which address each agent tries first, and when it reports again. No I/O, no clock."""

import itertools
from collections.abc import Callable, Iterator, Sequence


def spread(hosts: Sequence[str], addresses: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Host -> all addresses in order, beginning with number i modulo their number for host i."""
    first = {host: number % len(addresses) for number, host in enumerate(hosts)}
    return lambda host: (*addresses[first[host] :], *addresses[: first[host]])


def refreshes(
    hosts: Sequence[str], part: Sequence[str], interval_s: float
) -> Iterator[tuple[float, str | None]]:
    """When the agents of `part` report again: seconds since the start, and the host, without end.

    The agents of all `hosts` are spread evenly over the interval. None: an interval has passed.
    """
    wanted = set(part)
    phases = ((number / len(hosts) * interval_s, host) for number, host in enumerate(hosts))
    of_part = [(phase_s, host) for phase_s, host in phases if host in wanted]
    for turn in itertools.count():
        for phase_s, host in of_part:
            yield turn * interval_s + phase_s, host
        yield (turn + 1) * interval_s, None

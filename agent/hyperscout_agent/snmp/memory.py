"""Keeps state from one crawl to the next: switches that answered, and addresses that did not."""

from collections.abc import Mapping

from hyperscout_runtime.backoff import doubled_s

from hyperscout_agent.snmp.crawl import Crawl, Known


class CrawlMemory:
    """State between crawls. Times are monotonic seconds.

    An address that fails, and at which no known switch has answered, is queried again after `pause_s`, which
    doubles up to `max_pause_s`.
    """

    def __init__(self, *, forget_after_s: float, pause_s: float, max_pause_s: float) -> None:
        self._forget_after_s = forget_after_s
        self._pause_s = pause_s
        self._max_pause_s = max_pause_s
        self.known: tuple[Known, ...] = ()
        self._silent: dict[str, tuple[int, float, str]] = {}

    def resting(self, now_s: float) -> Mapping[str, str]:
        """Return the addresses that are not queried again yet, with the reason of their failure."""
        return {address: why for address, (_, until_s, why) in self._silent.items() if now_s < until_s}

    def learn(self, crawl: Crawl, now_s: float) -> None:
        """Record the results of a crawl."""
        self.known = crawl.remembered(now_s, self._forget_after_s)
        answered = {address for one in self.known for address in one.addresses}
        silent = {}
        for address, why in crawl.tried().items():
            if address in answered:
                continue
            times, until_s, _ = self._silent.get(address, (0, 0.0, ""))
            if now_s >= until_s:
                times += 1
                until_s = now_s + doubled_s(times, self._pause_s, self._max_pause_s)
            silent[address] = (times, until_s, why)
        self._silent = silent

    def ask_all(self) -> None:
        """Clear all pauses, because after a change silent addresses may answer."""
        self._silent.clear()

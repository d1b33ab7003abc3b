"""What one crawl leaves to the next: who answered, and at which addresses nobody ever did."""

from collections.abc import Mapping

from hyperscout_agent.snmp.crawl import Crawl, Known


class CrawlMemory:
    """What is known from one crawl to the next. Times are monotonic seconds."""

    def __init__(self, *, forget_after_s: float, pause_s: float, max_pause_s: float) -> None:
        self._forget_after_s = forget_after_s
        self._pause_s = pause_s
        self._max_pause_s = max_pause_s
        self.known: tuple[Known, ...] = ()
        self._silent: dict[str, tuple[int, float, str]] = {}

    def resting(self, now_s: float) -> Mapping[str, str]:
        """Addresses at which nobody ever answered, and which are not asked again yet, with the reason."""
        return {address: why for address, (_, until_s, why) in self._silent.items() if now_s < until_s}

    def learn(self, crawl: Crawl, now_s: float) -> None:
        """Take in how a crawl ended."""
        self.known = crawl.remembered(now_s, self._forget_after_s)
        answered = {address for one in self.known for address in one.addresses}
        silent = {}
        for address, why in crawl.tried().items():
            if address in answered:
                continue
            times, until_s, _ = self._silent.get(address, (0, 0.0, ""))
            if now_s >= until_s:
                times += 1
                until_s = now_s + min(self._pause_s * 2.0 ** min(times - 1, 20), self._max_pause_s)
            silent[address] = (times, until_s, why)
        self._silent = silent

    def ask_all(self) -> None:
        """Something else is different now: whoever was silent may answer."""
        self._silent.clear()

"""Crawls switches over SNMP: starts at known switches and follows their LLDP neighbours.

The probe runs in an agent with role `fabric`, so that the switches' credentials are in one place and not on
every node. A switch is one finding. `snmp.crawl` selects the addresses to query, `snmp.client` sends the
requests, and `snmp.access` has the credentials.
"""

import asyncio
import contextlib
import importlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

from hyperscout.v1.discovery_pb2 import Seeds
from hyperscout_formats.facts.facts import SwitchTable
from hyperscout_formats.facts.wire import switch_table_to_proto
from hyperscout_formats.snmp import switch as snmp_switch
from hyperscout_formats.snmp import values as snmp_values
from hyperscout_formats.text.prometheus_text import counter, gauge
from hyperscout_runtime.backoff import doubled_s
from hyperscout_runtime.errors import StartError, install_extra

from hyperscout_agent.findings.probe import (
    Observation,
    ProbeContext,
    ProbeError,
    ProbeParts,
    Sample,
    Scope,
    data,
    failed,
)
from hyperscout_agent.runtime.threads import in_thread
from hyperscout_agent.settings.fabric_settings import SnmpSettings
from hyperscout_agent.snmp.access import Credentials, Unreadable, read_credentials
from hyperscout_agent.snmp.crawl import CloneError, Crawl, CrawlCounts, Limits
from hyperscout_agent.snmp.memory import CrawlMemory
from hyperscout_agent.snmp.outcomes import ClientStats, SwitchError
from hyperscout_agent.snmp.tables import TooLarge, fitted, uncounted
from hyperscout_agent.snmp.walk import Walk

if TYPE_CHECKING:
    from hyperscout_agent.snmp.client import SnmpClient

_log = logging.getLogger(__name__)

# lldpLocChassisIdSubtype, lldpLocChassisId, lldpLocSysName.
_OWN: Final = tuple((1, 0, 8802, 1, 1, 2, 1, 3, scalar, 0) for scalar in (1, 2, 3))
# Seconds between crawls while something changes. The interval doubles up to `snmp.max_interval_s`.
_INTERVAL_S: Final = 30.0
_RETRIES: Final = 2
_CRAWL_TIMEOUT_S: Final = 900.0
# A switch that does not answer and that no switch reports is forgotten after an hour.
_FORGET_AFTER_S: Final = 3600.0
# An address that has not answered yet is queried again after a pause that doubles up to this limit.
_MAX_PAUSE_S: Final = 900.0
# The interval is at least this multiple of the last crawl's duration, to limit the load on switches and host.
_REST: Final = 2.0
# A walk with more rows gets no second one, to limit memory use.
_MAX_FOR_SECOND_WALK: Final = 20_000


SNMP_SWITCHES = gauge(
    "hyperscout_agent_snmp_switches",
    "Switches of the last crawl, by outcome: answered, failed, without_address (reported, but it "
    "announces none), too_deep (snmp.max_depth), left_out (snmp.max_switches).",
    "outcome",
)
SNMP_OUTSIDE = gauge(
    "hyperscout_agent_snmp_addresses_outside",
    "Addresses reported in the last crawl that are in no range of snmp.access.",
)
SNMP_REQUESTS = counter("hyperscout_agent_snmp_requests_total", "Requests to switches, without repeats.")
SNMP_SILENCES = counter("hyperscout_agent_snmp_silences_total", "Requests without an answer.")
SNMP_ROWS = counter("hyperscout_agent_snmp_rows_total", "Variables in the answers of switches.")
SNMP_GARBAGE = counter("hyperscout_agent_snmp_garbage_total", "Datagrams that could not be decoded.")


def build(context: ProbeContext) -> ProbeParts | None:
    settings = context.settings.snmp
    if not settings.on:
        return None
    try:
        importlib.import_module("hyperscout_agent.snmp.client")
    except ModuleNotFoundError as error:
        todo = install_extra("agent,snmp")
        raise StartError(f"snmp.access: {error.name} is not installed: {todo}") from error
    probe = SnmpProbe(settings, trigger=context.trigger)
    return ProbeParts(probe, directives={"seeds": probe.take_seeds}, metrics=probe.metrics)


class SnmpProbe:
    """Crawls switches. Subjects are chassis ids, or addresses when the chassis id is unknown.

    `trigger`: makes the scheduler run the probe.
    """

    name = "snmp"
    scope: Scope = "fabric"
    max_findings = 4000

    def __init__(
        self,
        settings: SnmpSettings,
        *,
        trigger: Callable[[], None],
        interval_s: float = _INTERVAL_S,
        crawl_timeout_s: float = _CRAWL_TIMEOUT_S,
        retries: int = _RETRIES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._trigger = trigger
        self._clock = clock
        self._least_s = min(interval_s, settings.max_interval_s)
        self._crawl_timeout_s = crawl_timeout_s
        self._retries = retries
        self.timeout_s = crawl_timeout_s + 2 * settings.request_timeout_s + 30.0
        self.client_stats = ClientStats()
        self.counts = CrawlCounts()  # of the last crawl
        self.answered = 0
        self.silent = 0
        self._memory = CrawlMemory(
            forget_after_s=_FORGET_AFTER_S, pause_s=self._least_s, max_pause_s=_MAX_PAUSE_S
        )
        self._credentials: Credentials | None = None
        self._heard: tuple[str, ...] = ()
        self._woken = bool(settings.seeds)
        self._unchanged = 0  # crawls in a row with the same result
        self._took_s = 0.0
        self._shapes: dict[str, int] = {}
        self._outside: frozenset[str] = frozenset()

    @property
    def interval_s(self) -> float | None:
        """None until there are seeds. Then seconds between crawls, doubling while nothing changes."""
        if not self._woken:
            return None
        settings = self._settings
        pause_s = doubled_s(1 + self._unchanged, self._least_s, settings.max_interval_s)
        return min(max(pause_s, _REST * self._took_s), settings.max_interval_s)

    def take_seeds(self, seeds: Seeds) -> None:
        """Set the switch addresses that agents heard over LLDP, as sent by the collector."""
        heard = tuple(sorted(seeds.addresses))
        if not self._woken or heard != self._heard:
            self._heard, self._woken = heard, True
            self._trigger()

    async def observe(self) -> Observation:
        settings = self._settings
        credentials = await in_thread(lambda: read_credentials(settings.access), "snmp-access")
        if credentials != self._credentials:
            self._credentials = credentials
            self._memory.ask_all()
        started_s = self._clock()
        crawl = Crawl(
            [*map(str, settings.seeds), *self._heard],
            lambda address: credentials.of(address) is not None,
            Limits(settings.max_switches, settings.max_depth),
            self._memory.known,
            self._memory.resting(started_s),
        )
        from hyperscout_agent.snmp.client import SnmpClient  # it needs the extra `snmp`

        client = SnmpClient(
            port=settings.port,
            timeout_s=settings.request_timeout_s,
            retries=self._retries,
            stats=self.client_stats,
        )
        try:
            in_time = await self._ask_all(crawl, client, credentials)
        finally:
            await client.close()
        self._took_s = self._clock() - started_s
        self._memory.learn(crawl, self._clock())
        self.counts = crawl.counts
        tables, failures = crawl.tables(), crawl.failures()
        self.answered, self.silent = len(tables), len(failures)
        self._log_outside(crawl.counts.outside)
        if not tables and not failures:
            raise ProbeError(self._why_none(crawl.counts))
        self._pace(tables, failures)
        samples: dict[str, Sample] = {subject: failed(reason) for subject, reason in failures.items()}
        samples |= {chassis: data(switch_table_to_proto(table)) for chassis, table in tables.items()}
        trouble = self._unfinished(crawl, in_time=in_time)
        return Observation(samples, complete=not trouble, trouble=trouble)

    async def _ask_all(self, crawl: Crawl, client: "SnmpClient", credentials: Credentials) -> bool:
        """Query addresses until none is left. Returns False when the crawl's time-out ended it earlier."""
        asking: set[asyncio.Task[None]] = set()
        try:
            async with asyncio.timeout(self._crawl_timeout_s):
                while True:
                    while len(asking) < self._settings.concurrency and (address := crawl.next()) is not None:
                        one = self._ask(address, crawl, client, credentials)
                        asking.add(asyncio.create_task(one, name=f"snmp-{address}"))
                    if not asking:
                        return True
                    done, asking = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
        except TimeoutError:
            return False
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def _ask(self, address: str, crawl: Crawl, client: "SnmpClient", credentials: Credentials) -> None:
        """Query one address and report the result to the crawl."""
        entry = credentials.of(address)
        if entry is None or isinstance(entry, Unreadable):
            crawl.failed(address, entry.reason if entry else "it is in no range of `snmp.access`")
            return
        limit_s = self._settings.switch_timeout_s
        end_s = asyncio.get_running_loop().time() + limit_s
        try:
            async with asyncio.timeout_at(end_s):
                walk = await client.walk(
                    address,
                    entry,
                    snmp_switch.wanted_subtrees(),
                    lambda walk: crawl.identified(address, *_own(walk)),
                )
            if walk is None:
                return
            again = snmp_switch.subtrees_to_walk_again(walk.rows)
            if again and len(walk) <= _MAX_FOR_SECOND_WALK:
                # What the first walk found counts in any case.
                with contextlib.suppress(SwitchError, TimeoutError):
                    async with asyncio.timeout_at(end_s):
                        if newer := await client.walk(address, entry, again, lambda _: True):
                            walk.add(newer)
            table = fitted(walk, address)
            if table.ports:
                crawl.answered(address, table, announced=bool(_own(walk)[0]))
            else:
                crawl.failed(address, "answers, but " + "; ".join([*walk.problems[:2], table.problems[-1]]))
        except TimeoutError:
            crawl.failed(address, f"the query did not end in {limit_s:g} s (`snmp.switch_timeout_s`)")
        except (SwitchError, CloneError, TooLarge) as error:
            crawl.failed(address, str(error))

    def metrics(self) -> Iterator[str]:
        """Yield the probe's metrics."""
        stats, counts = self.client_stats, self.counts
        yield SNMP_SWITCHES.by(
            {
                "answered": self.answered,
                "failed": self.silent,
                "too_deep": counts.too_deep,
                "left_out": counts.left_out,
                "without_address": counts.without_address,
            }
        )
        yield SNMP_OUTSIDE.of(len(counts.outside))
        yield SNMP_REQUESTS.of(stats.requests)
        yield SNMP_SILENCES.of(stats.silences)
        yield SNMP_ROWS.of(stats.rows)
        yield SNMP_GARBAGE.of(stats.garbage)

    def _pace(self, tables: Mapping[str, SwitchTable], failures: Mapping[str, str]) -> None:
        """Reset the interval after a change, else double it. Changed counters do not count as a change."""
        shapes: dict[str, int] = {chassis: hash(uncounted(table)) for chassis, table in tables.items()}
        shapes |= dict.fromkeys(failures, 0)
        self._unchanged = self._unchanged + 1 if shapes == self._shapes else 0
        self._shapes = shapes

    def _why_none(self, counts: CrawlCounts) -> str:
        if counts.outside:
            return (
                f"no switch may be queried: none of {len(counts.outside)} known addresses is in a range of "
                f"`snmp.access`: {_some(counts.outside)}"
            )
        return "no switch's address is known: `snmp.seeds` is empty, and no agent has received one over LLDP"

    def _unfinished(self, crawl: Crawl, *, in_time: bool) -> str:
        settings = self._settings
        if not in_time:
            return (
                f"the crawl did not end in {self._crawl_timeout_s:g} s: {crawl.waiting} addresses are left; "
                "raise `snmp.concurrency`"
            )
        if left_out := crawl.counts.left_out:
            most = settings.max_switches
            return f"{left_out} addresses were not queried: the limit is {most} (`snmp.max_switches`)"
        return ""

    def _log_outside(self, outside: AbstractSet[str]) -> None:
        """Log each address outside `snmp.access` once: it is excluded on purpose or by mistake."""
        if fresh := outside - self._outside:
            _log.info("not queried, because they are in no range of snmp.access: %s", _some(fresh))
        self._outside = frozenset(outside)


def _own(walk: Walk) -> tuple[str, str]:
    """Return the switch's chassis id and name from the rows received so far, "" when unknown."""
    subtype, chassis, name = map(walk.row, _OWN)
    text = snmp_values.chassis_id(subtype, chassis)[1] if chassis else ""
    return text, snmp_values.text(name)


def _some(addresses: Iterable[str]) -> str:
    listed = sorted(addresses)
    return ", ".join(listed[:5] + ["..."] * (len(listed) > 5))

"""Moves running gangs away from degraded links, or advises what to cordon.

    topology -> degraded links of each gang -> (longer than `wait_s`) -> a better place -> hook -> move

A gang is worse off when it uses more degraded links than the plan accepts. If that lasts `wait_s` seconds, a
thread looks for a better place. A gang moves only if its pods carry the annotation of the checkpoint hook, if
a controller creates them again, if each call of the hook succeeds, and if the hour's budget has room. In all
other cases an Event advises what to cordon. Each degradation is handled once. A gang that recovers in time
does not move.

The new nodes are reserved and the plan is stored before the first pod is deleted, so that another collector
continues the move. The number of moves in the last hour is lost with the leader.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from hyperscout_formats.text.counts import count, first_few
from hyperscout_kubernetes.client import Object
from hyperscout_placer.book.reservation import NoRoomError, NotReadyError, PlacementsError
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import RequestError
from hyperscout_placer.repair.repair import Improvement
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.errors import described

from hyperscout_gates.control.gang_record import GangRecord
from hyperscout_gates.control.placement_requests import PlacementRequests
from hyperscout_gates.control.reports import Reports
from hyperscout_gates.degradation.hook import HOOK, Hook, call
from hyperscout_gates.degradation.watch import Budget, DegradationSettings, Watch
from hyperscout_gates.state import events as e
from hyperscout_gates.state.gang_plan import GangPlan

_log = logging.getLogger(__name__)

_SHOWN = 5
_AGAIN_S = 600.0
_LOOKS = 1000  # gangs that are compared with a new topology in one call of `look`
_ATTEMPTS = 3  # free resources can change while a thread looks for a better place


class Mover:
    """Call `look` often. `run` until cancelled. `tell` passes an event to a gang."""

    def __init__(
        self,
        settings: DegradationSettings,
        requests: PlacementRequests,
        reports: Reports,
        tell: Callable[[GangRecord, e.Event], None],
        now_s: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._requests = requests
        self._reports = reports
        self._tell = tell
        self._now_s = now_s
        self._watches: dict[GangRecord, Watch] = {}
        self._seen: dict[GangRecord, tuple[Forest, GangPlan]] = {}
        self._budget = Budget(settings.moves_per_hour)
        self._due: dict[GangRecord, None] = {}
        self._work = asyncio.Event()
        self._threads = BoundedExecutor("gate-moves")

    def look(self, records: Iterable[GangRecord]) -> None:
        """Compare what the gangs use with the newest topology, and find out which of them are due."""
        if self._settings.action == "off":
            return
        try:
            forest = self._requests.forest()
        except NotReadyError:
            return
        now_s, gone, left = self._now_s(), set(self._watches), _LOOKS
        for record in records:
            gone.discard(record)
            plan = record.machine.plan
            if plan is None or record.parked_until_s is not None or not record.machine.can_move:
                continue
            seen = self._seen.get(record)
            if seen is None or seen[0] is not forest or seen[1] is not plan:
                if not left:
                    continue  # the next call compares it
                left -= 1
                self._seen[record] = forest, plan
                used = _used(forest, plan)
                links = forest.degraded_links(used) if used else 0
                watch = self._watches.setdefault(record, Watch(links, planned=links))
                watch.look(links, watch.planned if plan.accepted is None else plan.accepted, now_s)
            watch = self._watches[record]
            if watch.is_due(self._settings.wait_s, now_s) and record not in self._due:
                self._due[record] = None
                self._work.set()
        for record in gone - self._due.keys():
            del self._watches[record], self._seen[record]

    async def run(self) -> None:
        """Handle gangs that are due, one after the other."""
        while True:
            self._work.clear()
            while self._due:
                record = next(iter(self._due))
                try:
                    await self._handle(record, self._watches[record])
                except Exception as error:  # one gang must not stop the others
                    _log.exception("%s: the degraded links are not handled", record.machine.key)
                    self._advise(record, f"a defect: {described(error)}")
                del self._due[record]
            await self._work.wait()

    async def _handle(self, record: GangRecord, watch: Watch) -> None:
        plan = record.machine.plan
        watch.handled = watch.links
        if plan is None or (found := await self._search(record)) is None:
            return
        if not self._budget.allows(self._now_s()) and self._settings.action == "move":
            most = count(self._settings.moves_per_hour, "gang")
            self._postpone(record, watch, f"{most} moved within the last hour, which is the limit")
            return
        if why := self._why_not(record, found):
            self._advise(record, f"{why}; there is a place {_better(found)}")
            return
        if problems := await self._call_hooks(record, plan, found):
            text = f"the checkpoint hook fails: {first_few(problems, _SHOWN)}"
            self._advise(record, f"{text}; there is a place {_better(found)}")
            return
        for _ in range(_ATTEMPTS):
            now = await self._search(record)
            if now is None or record.machine.plan is not plan or not record.machine.can_move:
                return
            if watch.since_s is None:
                return  # the links recovered
            try:
                placement = self._requests.move(record.name, now)
            except NoRoomError:
                continue
            self._budget.spend(self._now_s())
            text = f"moves away from degraded links, {_better(now)}"
            self._reports.announce(record, e.Say("Warning", "Moves", text))
            self._tell(record, e.Moves(plan, placement))
            return
        self._postpone(record, watch, f"the free nodes changed in {_ATTEMPTS} attempts")

    async def _search(self, record: GangRecord) -> Improvement | None:
        """A place with fewer degraded links. If there is none, advise and return None."""
        try:
            search = self._requests.improvement_of(record.name, record.templates)
            found = await self._threads(search)
        except (PlacementsError, RequestError) as error:
            self._advise(record, str(error))
            return None
        if found is None or found.placement.cost.degraded >= found.before.degraded:
            self._advise(record, "there is no better place")
            return None
        return found

    def _postpone(self, record: GangRecord, watch: Watch, why: str) -> None:
        """Look again later, because the reason does not last."""
        watch.handled, watch.not_before_s = 0, self._now_s() + _AGAIN_S
        self._advise(record, f"{why}; it is tried again")

    def _why_not(self, record: GangRecord, found: Improvement) -> str:
        """Why the gang may not move; "" = it may."""
        if self._settings.action == "advise":
            return "the collector only advises"
        pods = {pod.rank: pod for _, pod in record.machine.members.opened()}
        moved = [pods[move.rank] for move in found.moves if move.rank in pods]
        if bare := next((pod for pod in moved if not pod.owned), None):
            return f"no controller creates pod {bare.name} again"
        hooks = _hooks(record)
        if missing := sorted(name for name, hook in hooks.items() if hook is None):
            return f"pod {missing[0]} has no annotation {HOOK}"
        if problems := sorted(hook.problem for hook in hooks.values() if hook is not None and hook.problem):
            return problems[0]
        return ""

    async def _call_hooks(self, record: GangRecord, plan: GangPlan, found: Improvement) -> list[str]:
        urls = {name: hook.url for name, hook in _hooks(record).items() if hook is not None and hook.url}
        if not urls:
            return []
        ranks = [move.rank for move in found.moves]
        body: Object = {"gang": plan.key, "ranks": ranks, "withinSeconds": self._settings.hook_timeout_s}
        return list(await call(urls, body, self._settings.hook_timeout_s))

    def _advise(self, record: GangRecord, why_not: str) -> None:
        plan = record.machine.plan
        if plan is None:
            return
        try:
            forest = self._requests.forest()
        except NotReadyError:
            return
        used = _used(forest, plan)
        parts = [
            f"{x} ({count(n, 'degraded link')})" for x, n in (forest.degraded_parts(used) if used else ())
        ]
        text = f"runs on degraded links and does not move: {why_not}. Cordon and repair: "
        self._reports.announce(record, e.Say("Warning", "Degraded", text + first_few(parts, _SHOWN)))


def _hooks(record: GangRecord) -> dict[str, Hook | None]:
    """The hook of each running pod, by its name."""
    running = {pod.uid for _, pod in record.machine.members.opened() if pod.node}
    kept = [record.pods[uid] for uid in running if uid in record.pods]
    return {pod["metadata"]["name"]: pod["gate"]["hook"] for pod in kept}


def _better(found: Improvement) -> str:
    return f"with {found.gain} ({found.price})"


def _used(forest: Forest, plan: GangPlan) -> list[int]:
    """The nodes of a gang that the topology has."""
    return [forest.index[name] for name in set(plan.nodes) if name in forest.index]

"""The facts about one gang, and what follows from them without a change of the facts."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from hyperscout_formats.text.host_list import natural_key
from hyperscout_placer.cluster.request import size

from hyperscout_gates.degradation.watch import DegradationSettings
from hyperscout_gates.state.events import Grow, Place, Pod, Repair
from hyperscout_gates.state.gang import Gang, is_elastic, is_resized, with_ranks
from hyperscout_gates.state.gang_plan import GangPlan
from hyperscout_gates.state.tries import Tries

NOWHERE = ""  # the node of a rank without node
_MOVE_S = 600.0  # how long a gang that moves keeps its nodes without pods: they end, and are created again

State = Literal[
    "starting",  # pods are still being reported after a start of the collector
    "waiting",  # it has no plan: pods, the owner or free nodes are missing
    "placing",  # a placement or a repair was requested
    "storing",  # its current plan is not stored yet
    "placed",  # its plan is stored, and no gate is open
    "open",  # a gate is open or may be open
    "clearing",  # its open pods are deleted, to place the whole gang again
    "empty",  # it has no live pod, and keeps its nodes for new pods
    "dropping",  # it has no plan, and the stored plan is to be deleted
    "ended",
]


# How events change the state. Events in other states leave the state as it is.
TRANSITIONS: Final[dict[State, dict[str, tuple[State, ...]]]] = {
    "starting": {"Began": ("clearing", "dropping", "empty", "ended", "open", "placed", "storing", "waiting")},
    "waiting": {"OwnerRead": ("ended",), "PodGone": ("ended",), "Turn": ("placing",)},
    "placing": {"NotPlaced": ("open", "waiting"), "Placed": ("storing",)},
    "storing": {
        "PlanNotStored": ("dropping",),
        "PlanStored": ("clearing", "dropping", "open", "placed"),
        "PodSeen": ("dropping", "empty"),
        "PodGone": ("dropping", "empty"),
    },
    "placed": {
        "OwnerRead": ("dropping", "open"),
        "NodesDown": ("open",),
        "PodSeen": ("dropping", "open"),
        "PodGone": ("dropping", "empty"),
    },
    "open": {
        "PodDeleted": ("empty",),
        "PodNotDeleted": ("clearing",),
        "PodGone": ("dropping", "empty", "placed"),
        "PodSeen": ("clearing", "dropping", "empty", "placed", "storing"),
        "Moves": ("storing",),
        "Tick": ("clearing", "storing"),
        "Turn": ("placing",),
    },
    "clearing": {
        "PodDeleted": ("dropping",),
        "PodGone": ("dropping",),
        "PodSeen": ("dropping", "open"),
        "Tick": ("dropping",),
    },
    "empty": {
        "OwnerRead": ("dropping",),
        "PlanNotStored": ("dropping",),
        "PodSeen": ("dropping", "open", "placed", "storing"),
        "Tick": ("dropping",),
    },
    "dropping": {"PlanDeleted": ("ended", "storing", "waiting")},
}


@dataclass(frozen=True, slots=True)
class GateSettings:
    """Times in seconds."""

    replace_after_s: float = 60.0  # until an unschedulable pod is placed again; doubles up to 4 times
    hot_swap: bool = True
    gather_s: float = 5.0  # wait for more pods of a failed node, so that their ranks move together
    linger_s: float = 60.0  # how long a gang without pods keeps its nodes, while its owner exists
    refused_s: float = 600.0  # how long a node is avoided after a pod could not be scheduled there
    patience_s: float = 15.0  # until a gang reports that pods are missing
    degradation: DegradationSettings = field(default_factory=DegradationSettings)
    drain_after_s: float = 600.0  # how long a gang waits until a domain is kept for it; 0 = no domain is kept
    defragment_every_s: float = 0.0  # between plans for the first waiting gang; 0 = no plans
    defragment_most_moves: int = 64  # most workers that a plan moves
    pod_labels: bool = False  # label pods with their leaf and NVLink domain


@dataclass(slots=True)
class Members:
    """The pods of a gang by uid. `seats`: ranks of gated pods by uid."""

    pods: dict[str, Pod] = field(default_factory=dict)
    seats: dict[str, int] = field(default_factory=dict)

    def put(self, pod: Pod) -> None:
        self.pods[pod.uid] = pod
        if not (pod.is_alive and pod.gated):
            self.seats.pop(pod.uid, None)

    def remove(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self.seats.pop(uid, None)

    def __iter__(self) -> Iterator[Pod]:
        return iter(self.pods.values())

    def __contains__(self, uid: str) -> bool:
        return uid in self.pods

    @property
    def any_alive(self) -> bool:
        return any(pod.is_alive for pod in self)

    @property
    def any_bound(self) -> bool:
        """Whether a pod runs on its node or has succeeded there."""
        return any(p.is_open and (p.succeeded or (p.is_alive and p.node)) for p in self)

    def opened(self) -> Iterator[tuple[int, Pod]]:
        """Yield live pods with a gate that this collector opened, and their ranks."""
        for pod in self:
            if pod.is_alive and pod.is_open and pod.rank is not None:
                yield pod.rank, pod

    def here(self, gang: Gang) -> int:
        """Return the number of gated pods that can take part. Pods of the same slot count once."""
        waiting = [p for p in self if p.gated and p.is_alive]
        seats = {p.slot for p in waiting if p.slot in gang.ranks}
        return len(seats) + sum(1 for p in waiting if not p.has_seat)

    def taken(self) -> set[int]:
        """Return the ranks of live pods."""
        return {*self.seats.values(), *(rank for rank, _ in self.opened())}

    def done(self) -> set[int]:
        """Return the ranks of pods that have succeeded and are not recreated."""
        ended = {p.rank for p in self if p.succeeded and p.has_seat and p.rank is not None}
        return ended - self.taken()

    def arrived(self, nodes: tuple[str, ...]) -> set[int]:
        """Return the ranks that need no reservation: their pods run on their nodes or have succeeded."""
        found = {rank for rank in self.done() if rank < len(nodes)}
        found.update(r for r, p in self.opened() if p.node and r < len(nodes) and nodes[r] == p.node)
        return found

    def strays(self, nodes: tuple[str, ...], *, bound: bool) -> Iterator[Pod]:
        """Yield pods that are pinned to another node than the plan has for them.

        `bound`: also those that run there.
        """
        for rank, pod in self.opened():
            if (bound or not pod.node) and not (rank < len(nodes) and nodes[rank] == (pod.node or pod.pin)):
                yield pod

    def seat(
        self, gang: Gang, size: int, before: Mapping[str, int], last: set[int], unread: Container[str] = ()
    ) -> list[Pod]:
        """Give ranks below `size` to gated pods, and return the pods for which there is none.

        A pod gets the rank of its slot, else the rank that it had `before`, else the first free rank of its
        role, in the natural order of the pods' names. Ranks in `last` are used after the others. Pods in
        `unread` wait.
        """
        without = [p for p in self if p.gated and p.is_alive and p.uid not in self.seats]
        waiting = [pod for pod in without if pod.uid not in unread]
        if not waiting:
            return []
        taken = self.taken()
        free: dict[str, list[int]] = {}
        left_out: list[Pod] = []
        for pod in sorted(waiting, key=lambda p: (not p.has_seat, natural_key(p.name), p.uid)):
            rank = gang.ranks.get(pod.slot) if pod.has_seat else before.get(pod.uid)
            if rank is not None and rank in taken:
                if pod.has_seat:
                    continue  # wait until the previous pod has gone
                rank = None
            if rank is None:
                if not free:
                    free = _free(gang.ranks, last)
                rank = _next_free(free.get(pod.role, []), taken)
            if rank is None or rank >= size:
                left_out.append(pod)
            else:
                self.seats[pod.uid] = rank
                taken.add(rank)
        return left_out


@dataclass(slots=True)
class GangFacts:
    """All facts about one gang at `now_s`. Times are Unix seconds, sets of strings are uids of pods.

    `plan`: the current plan. Gates open only while it is also the `stored` one.
    """

    key: str
    uid: str
    settings: GateSettings
    plan: GangPlan | None = None
    stored: GangPlan | None = None
    backoff: Tries = field(default_factory=Tries)
    gang: Gang | None = None
    members: Members = field(default_factory=Members)
    now_s: float = 0.0
    begun: bool = False
    ended: bool = False
    may_be_stored: bool = False  # the API server may have a plan
    has_reservation: bool = False
    was_used: bool = False  # a gate was opened under this plan
    arrived: set[int] = field(default_factory=set)
    opening: set[str] = field(default_factory=set)
    maybe_open: set[str] = field(default_factory=set)  # patched or maybe patched, not confirmed by the watch
    deleting: set[str] = field(default_factory=set)
    reading: bool = False
    storing: bool = False
    deleting_plan: bool = False
    read_with: set[str] = field(default_factory=set)  # pods that waited when the owner was read
    asked: Place | Repair | Grow | None = None
    is_over: bool = False  # the owner creates no more pods
    clearing: bool = False
    down: frozenset[str] = frozenset()
    refused: dict[str, float] = field(default_factory=dict)  # node -> until when it is avoided
    replaced: int = 0  # how often stuck pods were placed again
    lost_since_s: float | None = None  # since when a gated pod has no usable node
    empty_since_s: float | None = None  # since when no pod is alive
    spare_since_s: float | None = None  # since when the last ranks of an elastic gang have no pod

    @property
    def state(self) -> State:
        if self.ended:
            return "ended"
        if not self.begun:
            return "starting"
        if self.asked is not None:
            return "placing"
        if self.plan is None:
            return "dropping" if self.may_be_stored else "waiting"
        if self.clearing:
            return "clearing"
        if not self.members.any_alive:
            return "empty"
        if self.plan is not self.stored:
            return "storing"
        return "open" if self.engaged else "placed"

    @property
    def engaged(self) -> bool:
        """Whether a gate is open or may be open."""
        if self.opening or self.maybe_open:
            return True
        return any(pod.is_open and not pod.failed for pod in self.members)

    @property
    def waits_since_s(self) -> float:
        """When its first pod was created; defines the order of gangs with the same priority."""
        return min((pod.created_s for pod in self.members), default=0.0)

    @property
    def priority(self) -> int:
        """The highest priority of its gated pods; 0 if there are none."""
        return max((pod.priority for pod in self.members if pod.gated and pod.is_alive), default=0)

    @property
    def wants_nodes(self) -> bool:
        """Whether the machine would request nodes if it got a Turn."""
        return self.begun and not self.ended and (self.wants_repair or self.wants_place or self.wants_growth)

    @property
    def wants_place(self) -> bool:
        gang = self.gang
        if gang is None or self.reading or self.plan is not None or self.may_be_stored or self.engaged:
            return False
        if not self.backoff.may("place"):
            return False
        here = self.members.here(gang)
        return here >= gang.ready or (
            here >= (gang.least or gang.ready) and self.now_s >= self.patient_until_s
        )

    @property
    def patient_until_s(self) -> float:
        """Until when more pods are expected."""
        return max((pod.created_s for pod in self.members), default=0.0) + self.settings.patience_s

    @property
    def wants_repair(self) -> bool:
        plan = self.plan
        if plan is None or plan is not self.stored or self.gang is None or self.clearing or self.storing:
            return False
        if not self.engaged or self.gathers:
            return False
        busy = self.opening | self.maybe_open
        return any(self.is_bad(plan, rank) for uid, rank in self.members.seats.items() if uid not in busy)

    @property
    def wants_growth(self) -> bool:
        """Whether pods of an elastic gang wait for ranks that the plan does not have yet.

        While the gang moves, it does not grow.
        """
        if self.plan is None or self.plan is not self.stored or self.clearing or self.storing:
            return False
        if self.plan.moves:
            return False
        return self.ranks_wanted > len(self.plan.nodes) and self.engaged and not self.wants_repair

    @property
    def ranks_wanted(self) -> int:
        """With how many ranks all pods of the gang have one; 0 = the plan has no more ranks to give."""
        gang, plan = self.gang, self.plan
        if gang is None or plan is None or not is_elastic(gang.request):
            return 0
        if not is_resized(gang.request, plan.request):
            return 0
        waiting = [p for p in self.members if p.gated and p.is_alive and p.uid not in self.members.seats]
        ranks = [gang.ranks.get(pod.slot, -1) + 1 for pod in waiting if pod.has_seat]
        more = sum(not pod.has_seat for pod in waiting)
        return min(max([len(plan.nodes) + more, *ranks]), len(gang.ranks))

    @property
    def unread(self) -> set[str]:
        """Pods of an elastic gang whose slots are unknown until the owner is read: it may be larger now."""
        gang, plan = self.gang, self.plan
        if gang is None or plan is None or not is_elastic(plan.request):
            return set()
        read = () if self.reading else self.read_with
        new = (pod for pod in self.members if pod.has_seat and pod.uid not in read)
        return {pod.uid for pod in new if pod.slot not in gang.ranks}

    @property
    def linger_s(self) -> float:
        """How long nodes are kept for pods that do not exist."""
        return _MOVE_S if self.plan is not None and self.plan.moves else self.settings.linger_s

    @property
    def spare(self) -> GangPlan | None:
        """The plan without its last ranks that no pod has, as far as the gang can do without; None = none."""
        plan = self.plan
        if plan is None or not is_elastic(plan.request) or plan is not self.stored:
            return None
        if self.asked is not None or self.clearing or self.storing or not self.engaged:
            return None
        used = 1 + max(self.members.taken() | self.members.done(), default=-1)
        request = with_ranks(plan.request, used)
        return None if size(request.gang) >= len(plan.nodes) else plan.with_ranks(request)

    @property
    def can_move(self) -> bool:
        """Whether the gang runs as planned, so that its ranks can move to other nodes."""
        if self.plan is None or self.plan is not self.stored or self.asked is not None:
            return False
        if self.opening or self.maybe_open:
            return False  # onto the nodes of the present plan
        return self.begun and self.engaged and not (self.ended or self.clearing or self.storing)

    @property
    def gathers(self) -> bool:
        """Whether more pods of a failed node are about to lose it, so that all ranks move together."""
        if self.lost_since_s is None or self.now_s >= self.lost_since_s + self.settings.gather_s:
            return False
        bad = self.bad_nodes
        return any((pod.node or pod.pin) in bad for _, pod in self.members.opened())

    @property
    def bad_nodes(self) -> frozenset[str]:
        return frozenset(self.refused) | self.down

    def is_bad(self, plan: GangPlan, rank: int) -> bool:
        """Whether this rank of a plan needs another node."""
        node = plan.nodes[rank]
        return node == NOWHERE or node in self.refused or (self.settings.hot_swap and node in self.down)

    def ranks_to_move(self, plan: GangPlan) -> tuple[int, ...]:
        """Return the ranks on bad nodes that have no bound pod and no pod on its way."""
        fixed = {rank for rank, _ in self.members.opened()} | self.members.done()
        busy = self.opening | self.maybe_open
        fixed |= {rank for uid, rank in self.members.seats.items() if uid in busy}
        return tuple(r for r in range(len(plan.nodes)) if r not in fixed and self.is_bad(plan, r))


def _free(ranks: Mapping[str, int], last: set[int]) -> dict[str, list[int]]:
    """Return the ranks by role in reverse order: the next one to use is last."""
    found: dict[str, list[int]] = {}
    for slot, rank in sorted(ranks.items(), key=lambda x: (x[1] in last, x[1]), reverse=True):
        found.setdefault(slot.partition("/")[0], []).append(rank)
    return found


def _next_free(free: list[int], taken: set[int]) -> int | None:
    while free:
        if (rank := free.pop()) not in taken:
            return rank
    return None

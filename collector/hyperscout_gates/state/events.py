"""Events and instructions of a gang's state machine."""

from dataclasses import dataclass

from hyperscout_placer.cluster.answer import Placement
from hyperscout_placer.cluster.numa_zones import Zone

from hyperscout_gates.state.gang import Gang
from hyperscout_gates.state.gang_plan import GangPlan


@dataclass(frozen=True, slots=True)
class Pod:
    """The relevant part of a gang's pod. Times are Unix seconds.

    `rank`, `pin`: values that the patch that opened its gate recorded; None and "" before.
    `slot`: its position ("worker/3"), or only its role. `host`: the name by which other pods reach it, "" if
    there is none, None if it is that of its node.
    """

    uid: str
    namespace: str
    name: str
    slot: str = ""
    gated: bool = True
    rank: int | None = None
    pin: str = ""
    node: str = ""  # the node that it is bound to
    succeeded: bool = False
    failed: bool = False
    going: bool = False  # it has a deletion timestamp
    owned: bool = True  # a controller recreates it when it is deleted
    created_s: float = 0.0
    priority: int = 0
    stuck_since_s: float | None = None  # since when the scheduler finds no node for it
    version: str = ""
    host: str | None = ""

    @property
    def is_alive(self) -> bool:
        return not (self.succeeded or self.failed or self.going)

    @property
    def is_open(self) -> bool:
        """Whether this collector opened its gate. A gate that another client removed does not count."""
        return not self.gated and self.rank is not None

    @property
    def has_seat(self) -> bool:
        """Whether the pod must get the rank of its slot."""
        return "/" in self.slot

    @property
    def role(self) -> str:
        return self.slot.partition("/")[0]


# Events


@dataclass(frozen=True, slots=True)
class Began:
    """All existing pods have been reported. From here on the machine acts."""


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod appeared or changed."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodGone:
    uid: str


@dataclass(frozen=True, slots=True)
class OwnerRead:
    """The owner was read. `gang` is None if the owner is gone or `over`, has no waiting pods, or is invalid.

    `problem`: why the owner cannot be read as a gang. `retry`: whether another try may succeed.
    """

    gang: Gang | None
    over: bool = False
    problem: str = ""
    retry: bool = False


@dataclass(frozen=True, slots=True)
class OwnerStale:
    """The meaning of the owner may have changed because a new topology has other tiers."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Free resources may have changed, and it is this gang's turn to request nodes."""


@dataclass(frozen=True, slots=True)
class Placed:
    placement: Placement


@dataclass(frozen=True, slots=True)
class NotPlaced:
    reason: str


@dataclass(frozen=True, slots=True)
class PlanStored:
    plan: GangPlan


@dataclass(frozen=True, slots=True)
class PlanNotStored:
    """The plan may be stored nevertheless. `rejected`: another try cannot succeed."""

    problem: str
    rejected: bool = False


@dataclass(frozen=True, slots=True)
class PlanDeleted:
    """The plan is deleted or did not exist."""


@dataclass(frozen=True, slots=True)
class PlanNotDeleted:
    problem: str


@dataclass(frozen=True, slots=True)
class Opened:
    uid: str


@dataclass(frozen=True, slots=True)
class NotOpened:
    """The gate may be open nevertheless. `rejected`: the server rejects the patch; a retry does not help."""

    uid: str
    problem: str
    rejected: bool = False


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """Deletion was requested, or the pod did not exist."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodNotDeleted:
    uid: str
    problem: str


@dataclass(frozen=True, slots=True)
class NodesDown:
    """The nodes of the gang's plan that accept no new pods now."""

    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Moves:
    """The reservation of the running gang `plan` was changed to `placement`, away from degraded links."""

    plan: GangPlan
    placement: Placement


@dataclass(frozen=True, slots=True)
class Tick:
    pass


Event = (
    Began
    | PodSeen
    | PodGone
    | OwnerRead
    | OwnerStale
    | Turn
    | Placed
    | NotPlaced
    | PlanStored
    | PlanNotStored
    | PlanDeleted
    | PlanNotDeleted
    | Opened
    | NotOpened
    | PodDeleted
    | PodNotDeleted
    | NodesDown
    | Moves
    | Tick
)

# Instructions. One event answers each ReadOwner, Place, Repair, Grow, StorePlan, DeletePlan, Open, DeletePod.


@dataclass(frozen=True, slots=True)
class ReadOwner:
    pass


@dataclass(frozen=True, slots=True)
class Place:
    """Place the whole gang and reserve its nodes. Do not use nodes in `avoid`."""

    gang: Gang
    avoid: frozenset[str]


@dataclass(frozen=True, slots=True)
class Repair:
    """Move these ranks of a plan to other nodes, none in `avoid`. Other ranks stay."""

    gang: Gang
    plan: GangPlan
    ranks: tuple[int, ...]
    avoid: frozenset[str]


@dataclass(frozen=True, slots=True)
class Grow:
    """Add ranks to a plan up to this number of `workers`, or as many as fit, none on nodes in `avoid`.

    No rank of the plan moves.
    """

    gang: Gang
    plan: GangPlan
    workers: int
    avoid: frozenset[str]


@dataclass(frozen=True, slots=True)
class StorePlan:
    plan: GangPlan


@dataclass(frozen=True, slots=True)
class DeletePlan:
    pass


@dataclass(frozen=True, slots=True)
class Open:
    """Remove the collector's gate from the pod, pin it to the node and record its rank, in one patch.

    `ranks`: number of ranks of the gang. `coordinator`: the name by which other pods reach rank 0, "" if it
    has none or is not known. `zone`: where the plan has the pod's devices; None if they may be in any zone.
    """

    pod: Pod
    rank: int
    node: str
    ranks: int
    coordinator: str
    zone: Zone | None


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete the pod if it is unchanged. A pod that was bound in the meantime stays."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class Hold:
    """Reserve the nodes of a plan that was decided earlier."""

    plan: GangPlan
    arrived: frozenset[int]


@dataclass(frozen=True, slots=True)
class Arrive:
    """Pods of these ranks run on their nodes, so the nodes' free resources account for them."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Depart:
    """Pods of these ranks have left and others will follow, so their nodes are reserved again."""

    plan: GangPlan
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shrink:
    """The plan has fewer ranks now. Release the nodes of the others."""

    plan: GangPlan


@dataclass(frozen=True, slots=True)
class Release:
    pass


@dataclass(frozen=True, slots=True)
class Say:
    """Report to users, as an Event on the gang's owner and first pod."""

    severity: str  # Normal | Warning
    reason: str
    message: str


Instruction = (
    ReadOwner
    | Place
    | Repair
    | Grow
    | StorePlan
    | DeletePlan
    | Open
    | DeletePod
    | Hold
    | Arrive
    | Depart
    | Shrink
    | Release
    | Say
)

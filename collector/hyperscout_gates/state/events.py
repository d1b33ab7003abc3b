"""What a gang's state machine is told, and what it wants done."""

from dataclasses import dataclass, field

from hyperscout_placer.cluster.answer import Placement

from hyperscout_gates.state.gang import Gang
from hyperscout_gates.state.plan import Plan


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a gang, as far as it matters. `rank`, `pin`: what the patch that opened its gate wrote, None
    and "" before. `slot`: where it says that it belongs ("worker/3"), or its role. Times are Unix seconds."""

    uid: str
    namespace: str
    name: str
    slot: str = ""
    gated: bool = True
    rank: int | None = None
    pin: str = ""
    node: str = ""  # the one it is bound to
    succeeded: bool = False
    failed: bool = False
    going: bool = False  # it has a deletion time
    owned: bool = True  # somebody makes it again when it is deleted
    created_s: float = 0.0
    stuck_since_s: float | None = None  # the scheduler finds no place for it
    version: str = ""

    @property
    def is_alive(self) -> bool:
        return not (self.succeeded or self.failed or self.going)

    @property
    def is_open(self) -> bool:
        """Let go by us. A gate that somebody else took away makes a pod that is none of ours."""
        return not self.gated and self.rank is not None

    @property
    def has_seat(self) -> bool:
        """Whether no other rank than that of its slot will do."""
        return "/" in self.slot

    @property
    def role(self) -> str:
        return self.slot.partition("/")[0]


# Events


@dataclass(frozen=True, slots=True)
class Began:
    """All that is there has been told of: from here on there is something to do."""


@dataclass(frozen=True, slots=True)
class PodSeen:
    """It came, or changed."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodGone:
    uid: str


@dataclass(frozen=True, slots=True)
class OwnerRead:
    """`gang` None: the owner is gone or `over`, or cannot be read as a gang, for this `problem`; `retry`:
    it may be another time."""

    gang: Gang | None
    over: bool = False
    problem: str = ""
    retry: bool = False


@dataclass(frozen=True, slots=True)
class OwnerStale:
    """What was read may mean something else now: another topology has other tiers."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The room may have changed, and it is this gang's turn to ask for nodes."""


@dataclass(frozen=True, slots=True)
class Placed:
    placement: Placement


@dataclass(frozen=True, slots=True)
class NotPlaced:
    reason: str


@dataclass(frozen=True, slots=True)
class PlanStored:
    plan: Plan


@dataclass(frozen=True, slots=True)
class PlanNotStored:
    """It may be stored all the same. `rejected`: it never will be."""

    problem: str
    rejected: bool = False


@dataclass(frozen=True, slots=True)
class PlanDeleted:
    """It is gone, or never was."""


@dataclass(frozen=True, slots=True)
class PlanNotDeleted:
    problem: str


@dataclass(frozen=True, slots=True)
class Opened:
    uid: str


@dataclass(frozen=True, slots=True)
class NotOpened:
    """It may be open all the same. `rejected`: the server will not take it, however often."""

    uid: str
    problem: str
    rejected: bool = False


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """Deletion was asked for, or it was gone."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodNotDeleted:
    uid: str
    problem: str


@dataclass(frozen=True, slots=True)
class NodesDown:
    """All nodes that take no new pod now, of which the gang's plan may name some."""

    nodes: frozenset[str]


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
    | Tick
)

# Instructions. To each of those that ask the API server or the placer, an event answers.


@dataclass(frozen=True, slots=True)
class ReadOwner:
    pass


@dataclass(frozen=True, slots=True)
class Place:
    """The whole gang, and hold it; not on `avoid`."""

    gang: Gang
    avoid: frozenset[str]


@dataclass(frozen=True, slots=True)
class Repair:
    """Other nodes for these ranks of a plan, not on `avoid`; the others stay."""

    gang: Gang
    plan: Plan
    ranks: tuple[int, ...]
    avoid: frozenset[str]


@dataclass(frozen=True, slots=True)
class StorePlan:
    plan: Plan


@dataclass(frozen=True, slots=True)
class DeletePlan:
    pass


@dataclass(frozen=True, slots=True)
class Open:
    """Drop our gate of the pod, pin it to the node and write down its rank, in one patch."""

    pod: Pod
    rank: int
    node: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """If it is still what was seen: one that was bound meanwhile stays."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class Hold:
    """Hold the plan's nodes: what was decided before."""

    plan: Plan
    arrived: frozenset[int] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Arrive:
    """Pods of these ranks run on their nodes: the room there counts them."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Depart:
    """They do no longer, and others are to come: their place is held for them."""

    plan: Plan
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Release:
    pass


@dataclass(frozen=True, slots=True)
class Say:
    """To the users, as an Event on the gang's owner and first pod."""

    severity: str  # Normal | Warning
    reason: str
    message: str


Instruction = (
    ReadOwner
    | Place
    | Repair
    | StorePlan
    | DeletePlan
    | Open
    | DeletePod
    | Hold
    | Arrive
    | Depart
    | Release
    | Say
)

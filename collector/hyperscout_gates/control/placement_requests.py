"""Requests placements for gangs: which nodes the pods may use, where the gang goes, which ranks move.

It stores each result as a reservation in `Placements`, which the API shares. A gang's reservation has the
gang's key as name, unless another reservation has that name already.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from hyperscout_kubernetes.client import Object
from hyperscout_placer.book.drain import Drain, choose
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.book.reservation import (
    NoRoomError,
    NotReadyError,
    PlacementsError,
    Reservation,
    within_tiers,
)
from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Mask
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import Request, RequestError, ends
from hyperscout_placer.demands.node_masks import NodeMasks
from hyperscout_placer.repair.repair import Improvement, improvement, repair
from hyperscout_placer.repair.resize import Resized, resize
from hyperscout_placer.solve.elastic import at_least, counts_of
from hyperscout_placer.solve.place import NO_MASKS

from hyperscout_gates.state.events import (
    Arrive,
    Depart,
    Grow,
    Hold,
    NotPlaced,
    Place,
    Placed,
    Release,
    Repair,
    Shrink,
)
from hyperscout_gates.state.gang import with_ranks
from hyperscout_gates.state.gang_plan import GangPlan

_log = logging.getLogger(__name__)

_MOST_NEW = 16  # ranks that a gang gets at once; where few nodes are free, each of them takes up to 60 ms


class PlacementRequests:
    """Requests placements."""

    def __init__(self, placements: Placements, masks: NodeMasks, clock_ns: Callable[[], int]) -> None:
        self._placements = placements
        self._clock_ns = clock_ns
        self._masks = masks

    def forest(self) -> Forest:
        """The current forest. Raises NotReadyError."""
        return self._placements.capacity.forest

    def is_current(self, forest: Forest) -> bool:
        """Return whether this is the current forest; also True while none is known."""
        try:
            return self.forest() is forest
        except NotReadyError:
            return True

    def name_for(self, key: str, uid: str) -> str:
        """Return the reservation name for a gang without reservation."""
        return key if self._placements.get(key) is None else f"{key}@{uid[:8]}"

    def drain(self, asked: Place, prefer: str | None, priority: int) -> Drain | None:
        """Return the domain to keep for a gang that waits (see `choose`); None if there is none."""
        try:
            request, masks = self.constrained(asked)
            request = at_least(request)
            booked = self._placements.booked(request)
            return choose(asked.gang.key, request, masks, booked, prefer, priority=priority)
        except (PlacementsError, RequestError):
            return None

    def constrained(self, asked: Place) -> tuple[Request, Mapping[str, Mask]]:
        """Return the request of a gang and the masks by role. Raises NotReadyError."""
        return self._without(asked.gang.request, asked.avoid), self.masks_for(
            asked.gang.templates, asked.gang.request
        )

    def place(
        self, name: str, asked: Place, priority: int = 0, *, dry_run: bool = False, on_kept: bool = False
    ) -> Placed | NotPlaced:
        """Place a gang and reserve its nodes; a dry run reserves nothing. `on_kept`: as in `Placements`."""
        try:
            request, masks = self.constrained(asked)
            request = replace(request, priority=priority)
            answer = self._placements.place(
                name, request, holder=asked.gang.kind, masks=masks, dry_run=dry_run, on_kept=on_kept
            )
        except (PlacementsError, RequestError) as error:
            return NotPlaced(str(error))
        return Placed(answer) if isinstance(answer, Placement) else NotPlaced(answer.reason)

    def repair(self, name: str, asked: Repair) -> Placed | NotPlaced:
        """Move these ranks of a plan to other nodes. No other rank moves."""
        plan = asked.plan
        held = self._placements.get(name)
        if held is None:
            return NotPlaced("it holds no nodes")
        try:
            request = self._without(within_tiers(plan.request, self.forest().top), asked.avoid)
            # A rank without a node is one that has to move.
            running = ["" if rank in set(asked.ranks) else node for rank, node in enumerate(plan.nodes)]
            masks = self.masks_for(asked.gang.templates, plan.request)
            found = repair(self._placements.capacity_for(request), request, running, frozenset(), masks)
        except (PlacementsError, RequestError) as error:
            return NotPlaced(str(error))
        if isinstance(found, Refusal):
            return NotPlaced(found.reason)
        if others := {move.rank for move in found.moves} - set(asked.ranks):
            return NotPlaced(f"{len(others)} pods that run would have to move too, rank {min(others)} first")
        arrived = held.arrived - set(asked.ranks)
        self._placements.restore(replace(held, placement=found.placement, arrived=arrived))
        return Placed(self._placements.held(name).placement)

    def grow(self, name: str, asked: Grow) -> Placed | NotPlaced:
        """Add ranks to a plan near those that it has. No rank moves, and no kept node is used.

        A gang that wants many gets them in several turns, between which the event loop runs other tasks.
        """
        plan, gang = asked.plan, asked.gang
        if self._placements.get(name) is None:
            return NotPlaced("it holds no nodes")
        now = with_ranks(gang.request, len(plan.nodes))
        goal = with_ranks(gang.request, min(asked.workers, len(plan.nodes) + _MOST_NEW))
        try:
            capacity, masks = self._placements.capacity_for(now), self.masks_for(gang.templates, now)
            if (drain := self._placements.drain) is not None:
                masks = drain.masks_of_others(now, capacity.forest, masks)
            request = self._without(now, asked.avoid)
            found = resize(capacity, request, plan.nodes, counts_of(goal), masks)
            if isinstance(found, Refusal):
                return NotPlaced(f"{len(plan.nodes)} of {asked.workers} workers run: {found.reason}")
            self._placements.resize(name, replace(found.request, avoid=now.avoid), found.placement)
        except (PlacementsError, RequestError) as error:
            return NotPlaced(str(error))
        return Placed(replace(self._placements.held(name).placement, counts=counts_of(found.request)))

    def _shrink(self, held: Reservation, plan: GangPlan) -> None:
        """Release the nodes of the ranks that a plan does not have any more."""
        try:
            found = resize(
                self._placements.capacity_for(held.request),
                held.request,
                held.placement.nodes,
                counts_of(plan.request),
                NO_MASKS,
            )
            if isinstance(found, Resized) and found.placement.nodes == plan.nodes:
                self._placements.resize(held.gang, found.request, found.placement)
                return
        except (PlacementsError, RequestError) as error:
            _log.debug("%s: its cost is not computed anew", held.gang, exc_info=error)
        self._restore(held.gang, plan, frozenset(rank for rank in held.arrived if rank < len(plan.nodes)))

    def improvement_of(self, name: str, templates: Mapping[str, Object]) -> Callable[[], Improvement | None]:
        """Return a function for a thread that looks for a better place of a running gang.

        `templates`: role -> what its pods demand of a node; {} = unknown, and not applied. Raises
        PlacementsError.
        """
        held = self._placements.held(name)
        capacity = self._placements.capacity_for(held.request).copy()
        masks = self.masks_for(templates, held.request)
        if (drain := self._placements.drain) is not None:
            masks = drain.masks_of_others(held.request, capacity.forest, masks)
        return lambda: improvement(capacity, held.request, held.placement.nodes, masks)

    def move(self, name: str, found: Improvement) -> Placement:
        """Move the reservation of a running gang, and return where it is then.

        Raises NoRoomError if it does not fit any more.
        """
        if (drain := self._placements.drain) is not None and drain.keeps(x.target for x in found.moves):
            raise NoRoomError("nodes of the new place are kept for another gang now")
        self._placements.move(name, found.moves, found.placement)
        return self._placements.held(name).placement

    def update(self, name: str, instruction: Hold | Arrive | Depart | Shrink | Release) -> str:
        """Change the reservation `name` of a gang. Returns its name after that; "" = there is none."""
        if isinstance(instruction, Hold):
            plan = instruction.plan
            name = self.name_for(plan.key, plan.uid)
            self._restore(name, plan, instruction.arrived)
        elif (held := self._placements.get(name)) is not None:
            if isinstance(instruction, Arrive):
                self._placements.arrive(name, instruction.ranks)
            elif isinstance(instruction, Depart):
                self._restore(name, instruction.plan, held.arrived - set(instruction.ranks))
            elif isinstance(instruction, Shrink):
                self._shrink(held, instruction.plan)
            else:
                self._placements.release(name)
        return "" if isinstance(instruction, Release) else name

    def _restore(self, name: str, plan: GangPlan, arrived: frozenset[int]) -> None:
        now_ns = self._clock_ns()
        self._placements.restore(
            Reservation(name, plan.kind, plan.request, plan.placement, now_ns, arrived=arrived)
        )

    def _without(self, request: Request, avoid: frozenset[str]) -> Request:
        index = self.forest().index
        return replace(request, avoid=request.avoid | {node for node in avoid if node in index})

    def masks_for(self, templates: Mapping[str, Object], request: Request) -> Mapping[str, Mask]:
        """Return the masks by role. A role without known pods gets the mask of the first role.

        A merged role ("a+3") gets the mask of the role with which its name begins. Without `templates`, the
        demands of the request itself count.
        """
        if not (templates or request.demands):
            return NO_MASKS
        table = self._masks.now(self.forest())
        if not templates:
            return table.of(request)
        found = table.by_role(templates)
        first = next(iter(found.values()))
        roles = {kind.role for kind in ends(request.gang)}
        return {role: found.get(role.partition("+")[0], first) for role in roles}

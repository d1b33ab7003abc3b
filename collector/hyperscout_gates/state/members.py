"""The pods of one gang: which are alive, which ranks they have, and which seats are free."""

from collections.abc import Iterator, Mapping

from hyperscout_gates.state.events import Pod
from hyperscout_gates.state.gang import Gang


class Members:
    """Pods by uid. `seats`: ranks of gated pods by uid."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.seats: dict[str, int] = {}

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

    def strays(self, nodes: tuple[str, ...]) -> Iterator[Pod]:
        """Yield unbound pods that are pinned to another node than the plan has for them."""
        for rank, pod in self.opened():
            if not pod.node and not (rank < len(nodes) and nodes[rank] == pod.pin):
                yield pod

    def seat(self, gang: Gang, size: int, before: Mapping[str, int], last: set[int]) -> list[Pod]:
        """Give ranks below `size` to gated pods, and return the pods for which there is none.

        A pod gets the rank of its slot, else the rank that it had `before`, else the first free rank of its
        role. Ranks in `last` are used after the others.
        """
        waiting = [p for p in self if p.gated and p.is_alive and p.uid not in self.seats]
        if not waiting:
            return []
        taken = self.taken()
        free: dict[str, list[int]] = {}
        left_out: list[Pod] = []
        for pod in sorted(waiting, key=lambda p: (not p.has_seat, p.created_s, p.name, p.uid)):
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

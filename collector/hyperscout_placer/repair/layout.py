"""A gang by ranks: which copies of which groups each belongs to, so that some can move and the rest stay.

`place` sees kinds of groups and counts them; a gang that runs has ranks with numbers, and each copy of a
group is a run of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hyperscout_placer.cluster.request import Group, Request, Spread, Workers

GANG = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a group: ranks from `start` to before `stop`. `around`: the copy it is in, -1 = none."""

    start: int
    stop: int
    tier: int | None
    spread: Spread | None
    around: int


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """`kinds`: the different workers, each with count 1. By rank: its `kind`, the innermost `copy` around it,
    and which `end` of the request's tree it is of. `reference`: the end that fragmentation counts."""

    copies: tuple[Copy, ...]
    kinds: tuple[Workers, ...]
    kind: tuple[int, ...]
    copy: tuple[int, ...]
    end: tuple[int, ...]
    reference: int
    reference_kind: int

    @classmethod
    def of(cls, request: Request) -> "Layout":
        """Spreads that are only preferred are left out. Hard: the gang's own tier is its copy's."""
        copies: list[Copy] = []
        kinds: dict[Workers, int] = {}
        kind: list[int] = []
        copy: list[int] = []
        end: list[int] = []
        ends: dict[tuple[int, ...], int] = {}  # way to it in the tree of the request -> number in its order

        def walk(part: Group | Workers, around: int, where: tuple[int, ...]) -> None:
            if isinstance(part, Workers):
                number = ends.setdefault(where, len(ends))
                one = kinds.setdefault(Workers(1, part.resources, part.role), len(kinds))
                kind.extend([one] * part.count)
                copy.extend([around] * part.count)
                end.extend([number] * part.count)
                return
            for _ in range(part.count):
                at, start = len(copies), len(kind)
                spread = part.spread if part.spread and part.spread.required else None
                tier = None if around < 0 and request.mode == "soft" else part.tier
                copies.append(Copy(start, start, tier, spread, around))
                for i, inner in enumerate(part.parts):
                    walk(inner, at, (*where, i))
                copies[at] = Copy(start, len(kind), tier, spread, around)

        walk(request.gang, -1, ())
        counts = [0] * len(ends)
        for number in end:
            counts[number] += 1
        reference = counts.index(max(counts))
        return cls(
            tuple(copies),
            tuple(kinds),
            tuple(kind),
            tuple(copy),
            tuple(end),
            reference,
            kind[end.index(reference)],
        )

    def __len__(self) -> int:
        return len(self.kind)

    def around(self, rank: int) -> Iterator[int]:
        """The copies that a rank is in, from the innermost out."""
        at = self.copy[rank]
        while at >= 0:
            yield at
            at = self.copies[at].around

    @property
    def needs(self) -> list[Workers]:
        """By rank."""
        return [self.kinds[kind] for kind in self.kind]

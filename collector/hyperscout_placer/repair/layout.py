"""A gang by ranks: which copies of groups each rank is in, so that some can move and others stay.

`place` counts kinds of groups. A running gang has numbered ranks, and each copy of a group is a run of ranks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hyperscout_placer.cluster.capacity import Mask
from hyperscout_placer.cluster.kinds import kind_of, reference_of
from hyperscout_placer.cluster.request import Group, Request, Spread, Workers

GANG = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a group: ranks `start` to `stop` - 1. `around`: the copy that contains it, -1 = none."""

    start: int
    stop: int
    tier: int | None
    spread: Spread | None
    around: int


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The ranks of a gang. `kinds`: the different workers, each with count 1.

    By rank: its `kind`, and the innermost `copy` around it. `reference`: the kinds that fragmentation counts,
    which are alike; `placed`: how many ranks are of these. `gang`: the request's.
    """

    gang: Group

    copies: tuple[Copy, ...]
    kinds: tuple[Workers, ...]
    kind: tuple[int, ...]
    copy: tuple[int, ...]
    reference: tuple[int, ...]
    placed: int

    @classmethod
    def of(cls, request: Request, masks: Mapping[str, Mask]) -> "Layout":
        """The layout of a request, without preferred spreads.

        Only in hard mode the gang itself has a tier.
        """
        copies: list[Copy] = []
        kinds: dict[Workers, int] = {}
        kind: list[int] = []
        copy: list[int] = []

        def walk(part: Group | Workers, around: int) -> None:
            if isinstance(part, Workers):
                one = kinds.setdefault(Workers(1, part.resources, part.role), len(kinds))
                kind.extend([one] * part.count)
                copy.extend([around] * part.count)
                return
            for _ in range(part.count):
                at, start = len(copies), len(kind)
                spread = part.spread if part.spread and part.spread.required else None
                tier = None if around < 0 and request.mode == "soft" else part.tier
                copies.append(Copy(start, start, tier, spread, around))
                for inner in part.parts:
                    walk(inner, at)
                copies[at] = Copy(start, len(kind), tier, spread, around)

        walk(request.gang, -1)
        most, placed = reference_of(request.gang, masks)
        alike = kind_of(most, masks)
        reference = tuple(i for i, x in enumerate(kinds) if kind_of(x, masks) == alike)
        return cls(request.gang, tuple(copies), tuple(kinds), tuple(kind), tuple(copy), reference, placed)

    @property
    def reference_kind(self) -> int:
        """One of the kinds that fragmentation counts."""
        return self.reference[0]

    def __len__(self) -> int:
        return len(self.kind)

    def around(self, rank: int) -> Iterator[int]:
        """The copies that contain a rank, from the innermost outwards."""
        at = self.copy[rank]
        while at >= 0:
            yield at
            at = self.copies[at].around

    @property
    def needs(self) -> list[Workers]:
        """What each rank needs: (ranks,)."""
        return [self.kinds[kind] for kind in self.kind]

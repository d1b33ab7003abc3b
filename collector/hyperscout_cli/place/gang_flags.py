"""The flags that describe a gang, and the request that they make.

    --workers 128 --gpus-per-worker 8 --group-size 8 --group-tier leaf --spread 64:pod

They make the same message as a file of --request.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import click
from hyperscout_formats.facts.accelerators import KINDS, NVLINK

from hyperscout_cli.place.placement_files import MAX_WORKERS, read_request
from hyperscout_cli.shared.files import shown

if TYPE_CHECKING:
    from hyperscout.v1 import placement_pb2

_MAX_GROUPS = 16
_GROUP = re.compile(r"(?P<size>[0-9]{1,7}):(?P<tier>[^:]+)", re.ASCII)
_TOLERATION = re.compile(r"(?P<key>[^=:]+)(=(?P<value>[^:]*))?(:(?P<effect>[A-Za-z]+))?", re.ASCII)
_SPREAD = re.compile(r"(?P<most>[0-9]{1,7}):(?P<tier>[^:]+)(?::(?P<size>[0-9]{1,7}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class SpreadFlag:
    """At most `most` workers in one domain of `tier`: of the gang, or of each group of `size` workers."""

    most: int
    tier: str
    size: int | None
    preferred: bool

    @property
    def flag(self) -> str:
        return "--prefer-spread" if self.preferred else "--spread"


@dataclass(frozen=True, slots=True)
class Gang:
    """Values of the flags. `request` is a file that replaces them."""

    workers: int | None = None
    min_workers: int | None = None
    gpus_per_worker: int | None = None
    gpu_resource: str | None = None
    single_numa: bool = False
    mode: str | None = None
    highest_tier_allowed: str | None = None
    group_sizes: tuple[int, ...] = ()
    group_tiers: tuple[str, ...] = ()
    prefer_groups: tuple[str, ...] = ()
    spread: tuple[str, ...] = ()
    prefer_spread: tuple[str, ...] = ()
    even: str | None = None
    avoid: tuple[str, ...] = ()
    clusters: str | None = None
    use_down: bool = False
    node_selector: tuple[str, ...] = ()
    toleration: tuple[str, ...] = ()
    priority: int | None = None
    packing: str | None = None
    request: str | None = None

    @property
    def gpus(self) -> dict[str, int]:
        """The GPUs of each worker, by the name of their resource; {} = not given."""
        if self.gpus_per_worker is None:
            return {}
        return {self.gpu_resource or KINDS[NVLINK].resource: self.gpus_per_worker}

    def message(self) -> "placement_pb2.PlaceRequest":
        """The request. Raises UsageError, and BadInputError for an invalid file."""
        self.check()
        if self.request is not None:
            return read_request(self.request)
        return _message(self)

    def check(self) -> None:
        """Check that the flags do not contradict each other. Raises UsageError; reads no file."""
        if self.request is not None:
            if flag := self._first_flag():
                raise click.UsageError(f"--request and {flag}: give one of them")
        elif self.workers is None:
            raise click.UsageError("give --workers N, or --request FILE")
        else:
            if self.gpu_resource and self.gpus_per_worker is None:
                raise click.UsageError("--gpu-resource: give --gpus-per-worker too")
            groups = _groups(self, self.workers)
            _spreads(self, groups)
            _least(self, groups)
            _selector(self)
            _tolerations(self)

    def given(self) -> bool:
        """Whether any flag was given."""
        return self.request is not None or self._first_flag() is not None

    def in_flags(self, error: str) -> str:
        """An error about a field of the request ("parts[0].group.tier: ..."), as an error about its flag."""
        if self.request is not None:
            return f"{shown(self.request)}: {error}"
        if self.workers is None:
            return error
        where, colon, words = error.partition(": ")
        groups = _groups(self, self.workers)
        depth = where.count(".group")
        size = groups[depth - 1][0] if 1 <= depth <= len(groups) else None
        of_group = "" if size is None else f" of --group-size {size}"
        field = where.rpartition("].")[2].removeprefix("group.").removeprefix("workers.")
        name = re.split(r"\W", field)[0]
        if name == "spread":
            flag = next((s.flag for s in _spreads(self, groups) if s.size == size), "--spread") + of_group
        elif field == "tier":
            flag = f"--group-tier{of_group}"
        elif field == "preferred":
            flag = f"--prefer-group {size}"
        elif ".tolerations[" in where:
            flag = "--toleration"
        elif name in _FIELDS:
            flag = _flag(name)
        else:
            return error
        return flag + colon + words

    def _first_flag(self) -> str | None:
        for field in fields(self):
            if field.name != "request" and getattr(self, field.name) != field.default:
                return _flag(field.name)
        return None


_FLAG_OF = {
    "group_sizes": "--group-size",
    "group_tiers": "--group-tier",
    "prefer_groups": "--prefer-group",
    "resources": "--gpus-per-worker",
}
# Fields of a request that one flag gives.
_FIELDS = {"highest_tier_allowed", "resources", "node_selector", "single_numa", "even", "avoid", "clusters"}


def _flag(name: str) -> str:
    return _FLAG_OF.get(name, f"--{name.replace('_', '-')}")


def _groups(gang: Gang, workers: int) -> list[tuple[int, str, str]]:
    """Size, tier and preferred tier of each group ("" = none), outermost first. Raises UsageError."""
    sizes, tiers = gang.group_sizes, gang.group_tiers
    if len(sizes) != len(tiers):
        raise click.UsageError(
            f"--group-size and --group-tier: give as many of each ({len(sizes)} and {len(tiers)} were given)"
        )
    preferred = _preferred(gang)
    if len({*sizes, *preferred}) > _MAX_GROUPS:
        raise click.UsageError(f"--group-size: at most {_MAX_GROUPS} nested groups")
    groups = [(size, tier, preferred.pop(size, "")) for size, tier in zip(sizes, tiers, strict=True)]
    groups += [(size, "", tier) for size, tier in preferred.items()]
    groups.sort(key=lambda group: -group[0])
    around = workers
    for size, _, _ in groups:
        flag = "--group-size" if size in sizes else "--prefer-group"
        if around % size:
            what = f"--workers {workers}" if around == workers else f"--group-size {around}"
            raise click.UsageError(f"{flag} {size}: {what} is not a multiple of it")
        if around == size and sizes.count(size) > 1:
            raise click.UsageError(f"--group-size {size} is given twice: give it once, with the lowest tier")
        around = size
    return groups


def _least(gang: Gang, groups: Sequence[tuple[int, str, str]]) -> int:
    """The minimum of the outermost part, in workers or groups; 0 = none. Raises UsageError."""
    least, one = gang.min_workers, groups[0][0] if groups else 1
    if least is None:
        return 0
    if gang.workers is not None and least > gang.workers:
        raise click.UsageError(f"--min-workers {least}: expected at most --workers {gang.workers}")
    if least % one:
        raise click.UsageError(
            f"--min-workers {least}: expected a multiple of the groups of {one}, which stay whole"
        )
    return least // one


def _preferred(gang: Gang) -> dict[int, str]:
    """Preferred tiers by the size of the group. Raises UsageError."""
    found: dict[int, str] = {}
    for text in gang.prefer_groups:
        match = _GROUP.fullmatch(text)
        if match is None or not 1 <= int(match["size"]) <= MAX_WORKERS:
            raise click.UsageError(
                f"--prefer-group {text}: expected SIZE:TIER, such as 8:leaf (each run of 8 ranks in one "
                "leaf, if the gang needs no higher tier for that)"
            )
        if int(match["size"]) in found:
            raise click.UsageError(f"--prefer-group {text}: a second one for groups of {match['size']}")
        found[int(match["size"])] = match["tier"]
    return found


def _spreads(gang: Gang, groups: Sequence[tuple[int, str, str]]) -> list[SpreadFlag]:
    """Raises UsageError."""
    found: list[SpreadFlag] = []
    sizes = [size for size, _, _ in groups]
    for preferred, texts in ((False, gang.spread), (True, gang.prefer_spread)):
        for text in texts:
            match = _SPREAD.fullmatch(text)
            flag = "--prefer-spread" if preferred else "--spread"
            if match is None or not 1 <= int(match["most"]) <= MAX_WORKERS:
                raise click.UsageError(
                    f"{flag} {text}: expected MOST:TIER or MOST:TIER:SIZE, such as 8:leaf (at most 8 workers "
                    "of the gang in one leaf) or 1:node:16 (at most 1 worker of each group of 16 on one node)"
                )
            size = int(match["size"]) if match["size"] else None
            if size is not None and size not in sizes:
                raise click.UsageError(f"{flag} {text}: there is no --group-size {size}")
            spread = SpreadFlag(int(match["most"]), match["tier"], size, preferred)
            if any(other.size == size for other in found):
                unit = "the gang" if size is None else f"the groups of {size}"
                raise click.UsageError(f"{flag} {text}: a second spread for {unit}: give one")
            found.append(spread)
    return found


def _selector(gang: Gang) -> dict[str, str]:
    """Required labels. Raises UsageError."""
    found: dict[str, str] = {}
    for text in gang.node_selector:
        for pair in text.split(","):
            key, equals, value = pair.partition("=")
            if not (key and equals):
                raise click.UsageError(f"--node-selector {text}: expected KEY=VALUE, such as gpu=h100")
            if found.setdefault(key, value) != value:
                raise click.UsageError(f"--node-selector {text}: {key} has two values: give it once")
    return found


def _tolerations(gang: Gang) -> list[tuple[str, str | None, str]]:
    """Keys, values (None = any) and effects ("" = any) of the tolerations. Raises UsageError."""
    found = []
    for text in gang.toleration:
        match = _TOLERATION.fullmatch(text)
        if match is None:
            raise click.UsageError(
                f"--toleration {text}: expected KEY[=VALUE][:EFFECT], such as nvidia.com/gpu:NoSchedule"
            )
        found.append((match["key"], match["value"], match["effect"] or ""))
    return found


def _message(gang: Gang) -> "placement_pb2.PlaceRequest":
    from hyperscout.v1 import placement_pb2 as pb

    assert gang.workers is not None  # noqa: S101 (check() tests it)
    groups = _groups(gang, gang.workers)
    spreads = {
        s.size: pb.Spread(most=s.most, tier=s.tier, preferred=s.preferred) for s in _spreads(gang, groups)
    }
    innermost = groups[-1][0] if groups else gang.workers
    resources = {name: str(amount) for name, amount in gang.gpus.items()}
    workers = pb.Workers(
        count=innermost,
        resources=resources,
        single_numa=gang.single_numa,
        node_selector=_selector(gang),
        tolerations=[
            pb.Toleration(
                key=key, operator="Exists" if value is None else "Equal", value=value or "", effect=effect
            )
            for key, value, effect in _tolerations(gang)
        ],
    )
    part = pb.Part(workers=workers)
    for i in range(len(groups) - 1, -1, -1):
        size, tier, preferred = groups[i]
        around = groups[i - 1][0] if i else gang.workers
        count, spread = around // size, spreads.get(size)
        group = pb.Group(count=count, tier=tier, preferred=preferred, parts=[part], spread=spread)
        part = pb.Part(group=group)
    (part.group if groups else part.workers).min_count = _least(gang, groups)
    soft = gang.mode == "soft"
    return pb.PlaceRequest(
        mode=pb.PLACEMENT_MODE_SOFT if soft else pb.PLACEMENT_MODE_HARD,
        highest_tier_allowed=gang.highest_tier_allowed or "",
        parts=[part],
        spread=spreads.get(None),
        even=gang.even or "",
        avoid=gang.avoid,
        clusters=() if gang.clusters is None else gang.clusters.split(","),
        use_down=gang.use_down,
        priority=gang.priority or 0,
        packing=pb.PACKING_FRAGMENTS if gang.packing == "fragments" else pb.PACKING_UNSPECIFIED,
    )

"""The conditions that `status --wait` and `--for` wait for, and the loop that waits.

    ready                       nothing is wrong
    generation=N                that generation or a later one is published
    node/NAME                   the node is in the hierarchy
    hypernode/NAME              the HyperNode is published
    hypernode/NAME=CONDITION    its condition has the healthy status (Ready, Degraded, Consistent, Stale)
    hypernode/NAME=CONDITION=STATUS

NAME may be a host list.
"""

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click
from hyperscout_formats.text.counts import and_more
from hyperscout_formats.text.host_list import HostListError, expand, fold
from hyperscout_topology.health import HEALTHY
from hyperscout_topology.names import visible

from hyperscout_cli.shared.columns import shortened
from hyperscout_cli.shared.errors import CliError

if TYPE_CHECKING:
    from hyperscout_topology.topology import HyperNode, Topology

READY = "ready"
_OBJECT = re.compile(r"(?P<kind>node|hypernode)/(?P<names>[^=]+)(?:=(?P<type>[^=]+)(?:=(?P<status>[^=]+))?)?")
_GENERATION = re.compile(r"generation=([0-9]{1,18})", re.ASCII)
_FORMS = "ready, generation=N, node/NAME, hypernode/NAME or hypernode/NAME=Ready"
_MAX_NAMED = 10

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WantedState:
    """One value of --for. `generation` = 0: about `names`; without names: nothing is wrong."""

    text: str
    kind: str = READY
    names: tuple[str, ...] = ()
    condition: str = ""
    status: str = ""
    generation: int = 0

    def lacking(self, topology: "Topology", wrong: Sequence[str]) -> list[str]:
        """What is still missing, one line each."""
        if self.kind == READY:
            return list(wrong)
        if self.kind == "generation":
            there = topology.generation
            return [] if there >= self.generation else [f"generation {there} is published"]
        if self.kind == "node":
            known = {node for h in topology.hypernodes for node in h.nodes}
            return _missing("no evidence of", [name for name in self.names if name not in known])
        by_name = {h.name: h for h in topology.hypernodes}
        missing = _missing("not published:", [name for name in self.names if name not in by_name])
        if not self.condition:
            return missing
        return missing + [x for name in self.names if name in by_name for x in self._is_not(by_name[name])]

    def _is_not(self, hypernode: "HyperNode") -> Iterator[str]:
        found = next((c for c in hypernode.conditions if c.type == self.condition), None)
        if found is None:
            yield f"{hypernode.name} has no condition {self.condition}"
        elif found.status != self.status:
            yield f"{hypernode.name}: {found.type} is {found.status} ({found.reason}): {found.message}"


def wanted_states(
    ctx: click.Context, parameter: click.Parameter, texts: Sequence[str]
) -> tuple[WantedState, ...]:
    """The callback of --for. Raises BadParameter."""
    try:
        return tuple(map(_wanted_state, texts))
    except HostListError as error:
        raise click.BadParameter(str(error), ctx, parameter) from error


def _wanted_state(text: str) -> WantedState:
    if text == READY:
        return WantedState(text)
    if match := _GENERATION.fullmatch(text):
        return WantedState(text, "generation", generation=int(match[1]))
    match = _OBJECT.fullmatch(text)
    if match is None or (match["kind"] == "node" and match["type"]):
        raise click.BadParameter(f"{text!r}: expected {_FORMS}")
    kind, names, type_ = match["kind"], tuple(expand(match["names"])), match["type"] or ""
    types = {name.lower(): name for name in HEALTHY}
    condition = types.get(type_.lower(), type_)
    status = (match["status"] or HEALTHY.get(condition, "True")).capitalize()
    if type_ and condition not in HEALTHY:
        raise click.BadParameter(f"{text!r}: no condition {type_!r}: expected {', '.join(HEALTHY)}")
    if status not in {"True", "False", "Unknown"}:
        raise click.BadParameter(f"{text!r}: expected the status True, False or Unknown")
    return WantedState(text, kind, names, condition if type_ else "", status if type_ else "")


def _missing(what: str, names: list[str]) -> list[str]:
    return [f"{what} {fold(names[:_MAX_NAMED])}{and_more(len(names) - _MAX_NAMED)}"] if names else []


def wait(
    look: Callable[[], T],
    lacking: Callable[[T], list[str]],
    *,
    limit_s: float,
    clock: Callable[[], float],
    pause: Callable[[], None],
    say: Callable[[str], None],
) -> tuple[T, list[str]]:
    """Call `look` until nothing is lacking or the time is over. Returns the last result, and what it lacks.

    Also waits for a collector that is not reachable, which may be starting. Raises CliError if it never
    answered, and immediately for errors that waiting does not solve.
    """
    until = clock() + limit_s
    found: tuple[T, list[str]] | None = None
    while True:
        over = clock() >= until
        try:
            seen = look()
        except CliError as error:
            if not _may_pass(error) or (over and found is None):
                raise
            say(error.message)
        else:
            missing = lacking(seen)
            found = (seen, missing)
            if not missing:
                return found
            say(missing[0] + (f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""))
        if over and found is not None:
            return found
        pause()


def _may_pass(error: CliError) -> bool:
    import grpc

    cause = error.__cause__
    passing = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    return isinstance(cause, grpc.Call) and cause.code() in passing


class Progress:
    """One line on stderr that is updated in place. It writes nothing if stderr is no terminal."""

    def __init__(self, columns: int, *, shown: bool | None = None) -> None:
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._columns = columns
        self._began_s = time.monotonic()

    def say(self, what: str) -> None:
        """Show what the command waits for, and how long it has waited."""
        if not self._shown:
            return
        text = f"waiting {time.monotonic() - self._began_s:.0f} s: {visible(what)}"
        sys.stderr.write("\r" + shortened(text, self._columns - 1) + "\x1b[K")
        sys.stderr.flush()

    def done(self) -> None:
        """Clear the line."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

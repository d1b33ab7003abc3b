"""Options of commands that print a table: --sort-by, --selector and --no-headers.

A selector has kubectl's syntax (`kubectl get --help`, --selector). Its keys are the columns of the table.
"""

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
from hyperscout_formats.text.host_list import HostListError, expand, natural_key

from hyperscout_cli.shared.options import Command
from hyperscout_cli.shared.tables import Row, Table
from hyperscout_cli.shared.times import seconds_of

_KEY = r"(?P<key>[^\s=!(),]+)"
_REQUIREMENTS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        rf"{_KEY}\s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\)",
        rf"(?P<word>!)?\s*{_KEY}",
        rf"{_KEY}\s*(?P<word>!=|==?)\s*(?P<value>[^=].*|)",
    )
)
_PART = re.compile(r"(?:\([^()]*\)|\[[^][]*\]|[^,])*")  # up to a comma that is in no parentheses or brackets
_LISTS = frozenset({"SOURCES", "HYPERNODES", "OTHER", "FAILED"})  # columns whose cells are lists
_MOST_CHARS = 4096  # of a selector
_NUMBER = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)([A-Za-z/%]*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One part of a selector. `values`: None = any value. `negated`: the rows that do not have it."""

    key: str
    values: frozenset[str] | None
    negated: bool


@dataclass(frozen=True, slots=True)
class View:
    """What to show of a table, and in which order. `sort_by`: a column, "" = the table's own order."""

    heading: bool = True
    sort_by: str = ""
    selector: tuple[Requirement, ...] = ()

    def of(self, table: Table) -> Table:
        """The table with the selected rows, sorted. Raises UsageError for an unknown column."""
        return self.sorted(replace(table, rows=tuple(filter(self.keeps(table), table.rows))))

    def sorted(self, table: Table) -> Table:
        """The table with all its rows, sorted. Raises UsageError for an unknown column."""
        if not self.sort_by:
            return table
        (column, *_) = _columns(table, self.sort_by, "--sort-by")
        keys = _sort_keys([_cell(row, column) for row in table.rows])
        order = sorted(zip(keys, table.rows, strict=True), key=lambda pair: pair[0])
        return replace(table, rows=tuple(row for _, row in order))

    def keeps(self, table: Table) -> Callable[[Row], bool]:
        """Whether the selector selects a row of the table. Raises UsageError for an unknown column."""
        headings = (*table.headings, *table.more)
        tests = [(x, _columns(table, x.key, "--selector")) for x in self.selector]

        def has(requirement: Requirement, row: Row, columns: Sequence[int]) -> bool:
            texts = {text for i in columns for text in _texts(headings[i], _cell(row, i))}
            return bool(texts - {""} if requirement.values is None else texts & requirement.values)

        return lambda row: all(has(x, row, columns) is not x.negated for x, columns in tests)


ALL = View()


def _cell(row: Row, column: int) -> str:
    return (*row.cells, *row.more)[column]


def _columns(table: Table, name: str, flag: str) -> list[int]:
    """The positions of a column; two columns may have one heading."""
    headings = (*table.headings, *table.more)
    found = [i for i, heading in enumerate(headings) if heading.casefold() == name.casefold()]
    if not found:
        known = ", ".join(dict.fromkeys(headings))
        raise click.UsageError(f"{flag}: no column {name!r}: expected one of {known}")
    return found


def _texts(heading: str, cell: str) -> Iterator[str]:
    """The values of a cell."""
    yield cell
    if cell and heading in _LISTS:
        try:
            yield from expand(cell)
        except HostListError:
            return


def _sort_keys(cells: Sequence[str]) -> list[Any]:
    """Keys of one column: ages and numbers by value, other texts in natural order; empty cells are last."""
    filled = [cell for cell in cells if cell]
    for read in (_seconds, _number):
        found = {cell: read(cell) for cell in filled}
        if None not in found.values() and len({unit for _, unit in filter(None, found.values())}) <= 1:
            return [(not cell, found.get(cell) or (0.0, "")) for cell in cells]
    return [(not cell, natural_key(cell)) for cell in cells]


def _seconds(cell: str) -> tuple[float, str] | None:
    seconds = seconds_of(cell.removeprefix("in "))
    return None if seconds is None else (seconds, "s")


def _number(cell: str) -> tuple[float, str] | None:
    found = _NUMBER.fullmatch(cell)
    return (float(found[1]), found[2]) if found else None


def parse_selector(text: str) -> tuple[Requirement, ...]:
    """The requirements of a selector: `tier=1,reason,kind in (a,b),!parent`. Raises ValueError."""
    if len(text) > _MOST_CHARS:
        raise ValueError(f"{len(text)} characters: expected at most {_MOST_CHARS}")
    return tuple(map(_requirement, _parts(text)))


def _parts(text: str) -> Iterator[str]:
    """The text between commas."""
    at = 0
    while at <= len(text):
        found = _PART.match(text, at)
        assert found is not None  # noqa: S101 (the pattern matches nothing, too)
        yield found[0]
        at = found.end() + 1


def _requirement(text: str) -> Requirement:
    found = next(filter(None, (x.fullmatch(text.strip()) for x in _REQUIREMENTS)), None)
    if found is None:
        raise ValueError(
            f"{text.strip()[:100]!r}: expected KEY, !KEY, KEY=VALUE, KEY!=VALUE, KEY in (VALUE,...) or "
            "KEY notin (VALUE,...), with commas between them"
        )
    groups = found.groupdict()
    values: frozenset[str] | None = None
    if "values" in groups:
        values = frozenset(value.strip() for value in _parts(groups["values"]))
    elif "value" in groups:
        values = frozenset([groups["value"].strip()])
    return Requirement(groups["key"], values, groups["word"] in {"!", "!=", "notin"})


def _read_selector(
    ctx: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[Requirement, ...]:
    if text is None:
        return ()
    try:
        return parse_selector(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from error


def view_options(columns: Callable[[click.Context], Sequence[str]]) -> Callable[[Command], Command]:
    """The options; the command gets them as one `View`, named `view`. `columns`: for completion."""

    def complete_column(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        return [x for x in columns(ctx) if x.casefold().startswith(incomplete.casefold())]

    def complete_key(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        before, comma, key = incomplete.rpartition(",")
        return [f"{before}{comma}{x.lower()}=" for x in complete_column(ctx, parameter, key)]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_view(
            *args: Any, no_headers: bool, sort_by: str, selector: tuple[Requirement, ...], **more: Any
        ) -> Any:
            return command(*args, view=View(not no_headers, sort_by, selector), **more)

        options = (
            click.option(
                "--sort-by",
                metavar="COLUMN",
                default="",
                shell_complete=complete_column,
                help="Sort by a column of the table, in any case; columns of -o wide count, too.",
            ),
            click.option(
                "-l",
                "--selector",
                metavar="SELECTOR",
                callback=_read_selector,
                shell_complete=complete_key,
                help="Only rows whose columns match: tier=1, 'reason!=LinksDown', 'kind in (a,b)', "
                "'kind notin (a,b)', reason (not empty), '!reason'; commas mean `and`.",
            ),
            click.option("--no-headers", is_flag=True, help="Omit the headings of a table."),
        )
        found: Command = with_view
        for option in reversed(options):
            found = option(found)
        return found

    return decorate

"""Writes docs/reference: settings, metrics, commands and REST operations, from the code that defines them.

`make docs-reference` runs it.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

import click
import generated
from help_text import blocks
from hyperscout_agent.settings.settings import AgentSettings
from hyperscout_cli.main import COMMANDS, cli
from hyperscout_cli.shared.command import Section, sections
from hyperscout_cli.shared.options import collector_options, output_option
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.serve.rest.operations import OPERATIONS
from hyperscout_collector.serve.rest.parameters import Parameter
from hyperscout_formats.text.prometheus_text import Family
from hyperscout_runtime.settings import fields_of
from pydantic import BaseModel

FOLDER = generated.ROOT / "docs" / "reference"
WIDTH = 120  # characters of a line
_WRITTEN = "<!-- Written by `make docs-reference`; do not edit. -->"
_FAMILIES = (
    *(f"hyperscout_collector.app.metrics.{name}" for name in ("page", "ingest", "topology", "outputs")),
    *(f"hyperscout_agent.{name}" for name in ("pages.metrics", "probes.latency", "probes.snmp")),
)


def pages() -> dict[Path, str]:
    """The text of each page."""
    found = {
        "agent-settings.md": _settings("agent", AgentSettings),
        "collector-settings.md": _settings("collector", CollectorSettings),
        "metrics.md": _metrics(),
        "rest.md": _rest(),
        "commands.md": _commands(),
    }
    found |= {f"commands/{name}.md": _command(name) for name in COMMANDS}
    return {FOLDER / name: text for name, text in found.items()}


def _page(title: str, purpose: str, body: Iterable[str]) -> str:
    return f"# {title}\n\n{_WRITTEN}\n\n{textwrap.fill(purpose, WIDTH)}\n\n" + "\n".join(body) + "\n"


def _item(head: str, text: str) -> str:
    """One entry of a list, wrapped; words between backquotes stay on one line."""
    return textwrap.fill(
        f"- {head}: {text}", WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _escaped(text: str) -> str:
    """Text outside code: Markdown would take `<name>` for a tag and `*` for emphasis."""
    parts = text.split("`")
    escaped = (part if i % 2 else re.sub(r"([<*_])", r"\\\1", part) for i, part in enumerate(parts))
    return "`".join(escaped)


# --- settings -----------------------------------------------------------------------------------------------


def settings_of(model: type[BaseModel]) -> Iterator[tuple[str, str, str]]:
    """(name, default as a page shows it, description) of every setting; nested: `group.setting`."""
    for name, field in fields_of(model):
        value = field.default
        if field.default_factory is not None:
            shown = "the host's name"
        elif value is None or value in ("", ()):
            shown = "none"
        elif isinstance(value, bool):
            shown = str(value).lower()
        elif isinstance(value, int | float):
            shown = f"{value:g}" if isinstance(value, float) else str(value)
        else:
            shown = f"`{','.join(value) if isinstance(value, tuple) else value}`"
        yield name, shown, field.description or ""


def _settings(part: str, model: type[BaseModel]) -> str:
    purpose = (
        f"Every setting of the {part}, with its default. A setting stands in the YAML file under this name "
        "(a dot separates a group from its setting), in the environment as "
        f"`HYPERSCOUT_{part.upper()}_NAME` with two underscores for a dot, and on the command line as "
        "`--name` with hyphens. See [operations](../operations.md)."
    )
    return _page(f"Settings of the {part}", purpose, _settings_list(model))


def _settings_list(model: type[BaseModel]) -> Iterator[str]:
    group = ""
    for name, default, text in settings_of(model):
        head, dot, _ = name.rpartition(".")
        if dot and head != group:
            yield f"\n## {head}\n"
        group = head
        anchor = name.replace(".", "").lower()
        yield _item(f'<a id="{anchor}"></a>`{name}` (default {default})', _escaped(text))


# --- metrics ------------------------------------------------------------------------------------------------


def families() -> list[Family]:
    """Every metric that the agent or the collector serves, as it is declared."""
    found = []
    for module in _FAMILIES:
        for value in vars(import_module(module)).values():
            several = value.values() if isinstance(value, dict) else (value,)
            found += [one for one in several if isinstance(one, Family)]
    return found


def _metrics() -> str:
    purpose = (
        "Every metric of the agent and the collector: name, type, labels and meaning. "
        "[Metrics](../metrics.md) says how to scrape, join and alert."
    )

    def line(family: Family) -> str:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        return _item(
            f"`{family.name}` ({family.kind}{'; labels ' * bool(labels)}{labels})", _escaped(family.help)
        )

    return _page("Metrics reference", purpose, map(line, families()))


# --- REST ---------------------------------------------------------------------------------------------------


def _rest() -> str:
    purpose = (
        "Every operation of REST with its parameters. `/v1/openapi.json` of a collector describes the "
        "objects. [REST](../rest.md) says how to authenticate, page and follow changes."
    )
    return _page("REST reference", purpose, _operations())


def _operations() -> Iterator[str]:
    for operation in OPERATIONS:
        yield f"## {operation.http} {operation.path.replace(':path', '')}\n"
        yield textwrap.fill(_escaped(operation.summary), WIDTH) + "\n"
        if operation.body is not None:
            yield f"- body: `{operation.body.DESCRIPTOR.name}` as JSON"
        yield from (
            _item(f"`{one.name}`{_form(one)}", _escaped(one.description)) for one in operation.parameters
        )
        if operation.body is not None or operation.parameters:
            yield ""


def _form(one: Parameter) -> str:
    notes = [one.kind if one.kind != "text" else "", "repeatable" * one.repeated, "required" * one.required]
    notes.append("one of " + ", ".join(f"`{choice}`" for choice in one.choices) if one.choices else "")
    shown = ", ".join(filter(None, notes))
    return f" ({shown})" if shown else ""


# --- commands -----------------------------------------------------------------------------------------------


@click.command()
@output_option()
@collector_options
def _common(**_: object) -> None:
    """Its options are those of every command that queries a collector."""


_common.params = [parameter for parameter in _common.params if parameter.name != "output"]
_COMMON = {name for parameter in _common.params for name in parameter.opts} | {"--help"}


def _commands() -> str:
    purpose = (
        "Every command of `hyperscout`. [The command line](../command-line.md) explains what all commands "
        "share. `hyperscout COMMAND --help` and `man hyperscout-COMMAND` show the same texts."
    )
    return _page("Commands", purpose, _command_list())


def _command_list() -> Iterator[str]:
    for section in dict.fromkeys(section for _, section, _ in COMMANDS.values()):
        yield f"## {section}\n"
        for name, (_, of, text) in COMMANDS.items():
            if of == section:
                yield f"- [`hyperscout {name}`](commands/{name}.md): {text}"
        yield ""
    yield "## Common options\n"
    yield "Commands that query a collector have all of these."
    yield "Every command has `--help`, and most have `--color`.\n"
    yield from _options(click.Context(_common), _common)
    yield from (line for section in sections(_common, "") for line in _section(section))


def _options(context: click.Context, command: click.Command) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            yield _item(f"`{record[0]}`", _escaped(" ".join(record[1].split())))
    yield ""


def _section(section: Section) -> Iterator[str]:
    yield f"{section.title}:\n"
    yield from (_item(f"`{a}`", _escaped(b)) if a else f"- {_linked(b)}" for a, b in section.rows)
    yield ""


def _linked(text: str) -> str:
    return re.sub(r"docs/([\w/-]+\.md)", r"[\1](../../\1)", _escaped(text))


def _command(name: str) -> str:
    context = cli.context_class(cli, info_name="hyperscout", **cli.context_settings)
    command = cli.get_command(context, name)
    assert command is not None  # noqa: S101 (from the table of commands)
    body = "\n".join(_describe(command, f"hyperscout {name}", context, 2))
    return f"# hyperscout {name}\n\n{_WRITTEN}\n\n{body.rstrip()}\n"


def _describe(command: click.Command, path: str, parent: click.Context, level: int) -> Iterator[str]:
    name = path.rpartition(" ")[2]
    context = command.context_class(command, info_name=name, parent=parent, **command.context_settings)
    yield f"```text\n{path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    yield _paragraphs(command.help or "")
    queries = {p.name for p in command.params} >= {p.name for p in _common.params} - {"color"}
    params = [p for p in command.params if not (queries and _COMMON & set(p.opts))]
    yield from _options(context, click.Command("own", params=params, add_help_option=False))
    if queries:
        yield "Also the [common options](../commands.md#common-options).\n"
    if command.epilog:
        yield _paragraphs(command.epilog)
    shared = {row for section in sections(_common, "") for row in section.rows}
    for section in sections(command, path.removeprefix("hyperscout").strip()):
        rows = tuple(row for row in section.rows if not row[0] or row not in shared)
        yield from _section(Section(section.title, rows)) if rows else ()
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None  # noqa: S101 (listed a line above)
            yield f"{'#' * level} {path} {name}\n"
            yield from _describe(found, f"{path} {name}", context, level + 1)


def _paragraphs(text: str) -> str:
    """Help text as Markdown."""
    parts = []
    for block in blocks(text):
        heading = f"{block.heading}:" if block.heading else ""
        if block.kept:
            kept = "\n".join(block.kept)
            parts.append(f"{heading}\n\n" * bool(heading) + f"```text\n{kept}\n```\n")
        else:
            whole = _escaped(f"{heading} {block.text}".strip())
            parts.append(textwrap.fill(whole, WIDTH, break_on_hyphens=False) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    generated.run("docs-reference", pages(), FOLDER)

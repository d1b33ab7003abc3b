"""Flags for all settings of a process; the description of a setting is its help."""

import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin

import click
from hyperscout_runtime.settings import fields_of
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

F = TypeVar("F", bound=Callable[..., Any])

_SEPARATOR = "__"  # between a group of settings and a setting in it, as in the environment


def setting_flags(
    model: type[BaseModel], retired: Iterable[str], renamed: Mapping[str, str] | None = None
) -> Callable[[F], F]:
    """Add --config, and `--group-setting` for each setting; `renamed` gives some of them another flag.

    `retired`: former settings (`group.setting`), whose flags are accepted and not shown. The command gets
    `group__setting` by name; `given` converts them for the settings' loader.
    """

    def decorate(command: F) -> F:
        for name in retired:
            name = name.replace(".", _SEPARATOR)  # noqa: PLW2901
            command = click.option(_flag(name), name, hidden=True)(command)
        for name, field in reversed(list(fields_of(model))):
            name = name.replace(".", _SEPARATOR)  # noqa: PLW2901
            flag = (renamed or {}).get(name, _flag(name))
            if field.annotation is bool:
                flag += f"/--no-{flag[2:]}"
                command = click.option(flag, name, default=None, help=_help(field))(command)
            else:
                several = _is_list(field.annotation) and not _splits_text(field)
                metavar = _metavar(field.annotation)
                command = click.option(flag, name, metavar=metavar, multiple=several, help=_help(field))(
                    command
                )
        config = click.option(
            "--config",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="YAML file of settings, `name: value`. Flags and the environment override it.",
        )
        return config(command)

    return decorate


def _flag(name: str) -> str:
    return "--" + name.replace(_SEPARATOR, "-").replace("_", "-")


def given(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that were given, nested by group."""
    nested: dict[str, Any] = {}
    for name, value in flags.items():
        if value is None or value == ():
            continue
        *groups, setting = name.split(_SEPARATOR)
        place = nested
        for group in groups:
            place = place.setdefault(group, {})
        place[setting] = value
    return nested


def _help(field: FieldInfo) -> str:
    text = field.description or ""
    default = field.default
    if field.annotation is bool:
        default = str(default).lower()
    elif isinstance(default, tuple):
        default = ",".join(map(str, default))
    elif isinstance(default, float):
        default = f"{default:g}"
    return text if field.default_factory or default in {None, ""} else f"{text}  [default: {default}]"


def _alternatives(annotation: Any) -> list[Any]:
    if get_origin(annotation) in {Union, types.UnionType}:
        return [a for a in get_args(annotation) if a is not type(None)]
    return [annotation]


def _is_list(annotation: Any) -> bool:
    return any(get_origin(a) in {tuple, list} for a in _alternatives(annotation))


def _splits_text(field: FieldInfo) -> bool:
    """Whether the setting parses a text itself (`a,b`)."""
    return any(isinstance(m, BeforeValidator) for m in field.metadata)


def _metavar(annotation: Any) -> str:
    words = {str: "TEXT", int: "N", float: "NUMBER", Path: "PATH"}
    for alternative in _alternatives(annotation):
        if alternative in words:
            return words[alternative]
        if choices := [a for a in get_args(alternative) if isinstance(a, str)]:
            return "|".join(choices)
    return "TEXT"

"""Loads the settings of a process from a YAML file, the environment and flags. Flags take precedence over the
environment, and the environment over the file.

A name that is no setting is an error that names it, so that a misspelt setting is never ignored. A retired
name is ignored with a warning in the log.
"""

import copy
import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import yaml
from pydantic import AfterValidator, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource
from pydantic_settings import SettingsError as VariableError

_log = logging.getLogger(__name__)

MAX_FILE_BYTES: Final = 1024 * 1024

Tree = dict[str, Any]  # settings by name; the value of a group is a tree


class SettingsError(ValueError):
    """The settings cannot be used. Each line names the source and the setting, and what is expected."""


class ProcessSettings(BaseSettings):
    """Base of the settings of a process. An instance takes its values only from the constructor's arguments.

    `env_prefix` and `env_nested_delimiter` of the model's configuration are for `load`.
    """

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def _checked_pattern(value: str | None) -> str | None:
    try:
        re.compile(value or "")
    except re.error as error:
        raise ValueError(f"expected a regular expression: {error}") from error
    return value


Pattern = Annotated[str | None, AfterValidator(_checked_pattern)]  # a regular expression
_Settings = TypeVar("_Settings", bound=ProcessSettings)


def load(
    model: type[_Settings], file: Path | None, flags: Mapping[str, Any] | None, retired: Mapping[str, str]
) -> _Settings:
    """Read the settings. Raises SettingsError.

    `flags`: nested like the file; None is a flag that was not given. `retired`: what became of each former
    setting, by name (`group.name` in a group), as in "is a constant now (30 s)".
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    sources: dict[str, Tree] = {"flag ": given, "environment: ": _environment(model, retired)}
    if file is not None:
        sources[f"{file}: "] = _read(file)
    values: Tree = {}
    for origin, tree in reversed(sources.items()):
        for name in tree:
            if name.startswith("_"):  # BaseSettings takes such arguments for itself
                raise SettingsError(f"{origin}{name}: no such setting")
        values = _merged(values, _without(tree, retired, origin))
    try:
        return model(**values)
    except ValidationError as error:
        raise SettingsError("\n".join(_sentence(one, sources) for one in error.errors())) from error


def _environment(model: type[ProcessSettings], retired: Mapping[str, str]) -> Tree:
    prefix = model.model_config["env_prefix"]
    delimiter = model.model_config.get("env_nested_delimiter")
    found: Tree = {}
    unknown = []
    for variable in sorted(name for name in os.environ if name.startswith(prefix)):
        name = variable.removeprefix(prefix).lower()
        path = name.split(delimiter) if delimiter else [name]
        if ".".join(path) in retired:
            value: Any = os.environ[variable]
            for part in reversed(path):
                value = {part: value}
            found = _merged(found, value)
        elif path[0] not in model.model_fields:
            unknown.append(f"environment: {variable}: no such setting")
    if unknown:
        raise SettingsError("\n".join(unknown))
    try:
        return _merged(found, EnvSettingsSource(model)())
    except VariableError as error:
        raise SettingsError(f"environment: {error}: expected JSON") from error


def _read(file: Path) -> Tree:
    try:
        with file.open("rb") as stream:
            text = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from error
    if len(text) > MAX_FILE_BYTES:
        raise SettingsError(f"{file}: larger than {MAX_FILE_BYTES} bytes")
    try:
        content = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise SettingsError(f"{file}: {line}not YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: of UTF-8, or of a date
        raise SettingsError(f"{file}: not YAML: {str(error).splitlines()[0]}") from error
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise SettingsError(f"{file}: expected `name: value` lines")
    return content


def _without(tree: Tree, retired: Mapping[str, str], origin: str) -> Tree:
    """Return the tree without the retired settings, and log a warning for each."""
    tree = copy.deepcopy(tree)
    for name, sentence in retired.items():
        *groups, last = name.split(".")
        place: object = tree
        for group in groups:
            place = place.get(group) if isinstance(place, dict) else None
        if isinstance(place, dict) and last in place:
            del place[last]
            _log.warning("%s%s has no effect: it %s; remove it", origin, name, sentence)
    return tree


def _merged(low: Mapping[str, Any], high: Mapping[str, Any]) -> Tree:
    """Return both trees as one; values of `high` take precedence."""
    both = dict(low)
    for name, value in high.items():
        before = both.get(name)
        is_group = isinstance(before, dict) and isinstance(value, dict)
        both[name] = _merged(before or {}, value) if is_group else value
    return both


def _is_in(tree: object, path: Sequence[object]) -> bool:
    """Return whether the tree has a value at the path, or at a part of it."""
    for name in path:
        if not isinstance(tree, dict):
            return True
        if name not in tree:
            return False
        tree = tree[name]
    return True


def _sentence(error: ErrorDetails, sources: Mapping[str, Tree]) -> str:
    """Return one line: the source, the name as in the file, and what is expected."""
    if not error["loc"]:
        return error["msg"].removeprefix("Value error, ")
    origin = next((origin for origin, tree in sources.items() if _is_in(tree, error["loc"])), "")
    name = ".".join(map(str, error["loc"]))
    is_unknown = error["type"] == "extra_forbidden"
    message = "no such setting" if is_unknown else error["msg"].removeprefix("Value error, ")
    return f"{origin}{name}: {message}"

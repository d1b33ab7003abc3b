"""Loads the settings of a process from a YAML file, the environment and flags. Flags take precedence over the
environment, and the environment over the file.

A name that is no setting is an error that names it, so that a misspelt setting is never ignored. A retired
name is ignored with a warning in the log.
"""

import copy
import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource
from pydantic_settings import SettingsError as VariableError
from yaml.reader import Reader, ReaderError

from hyperscout_runtime.errors import did_you_mean

_log = logging.getLogger(__name__)

MAX_FILE_BYTES: Final = 1024 * 1024

_YAML_HINT: Final = "expected `name: value` lines, each group indented, texts with `: ` or ` #` in quotes"
_QUOTED: Final = re.compile(r'"(\w+)"')
_ENVIRONMENT: Final = "environment: "  # the source in a message
_MAX_FOUND: Final = 40  # characters of a value in a message
# What pydantic expected, by its type of error. Other types have a text of their own.
_EXPECTED: Final[Mapping[str, str]] = {
    "bool_parsing": "expected true or false",
    "bool_type": "expected true or false",
    "int_parsing": "expected a whole number",
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "int_parsing_size": "expected a smaller number",
    "float_parsing": "expected a number",
    "float_type": "expected a number",
    "finite_number": "expected a number that is finite",
    "greater_than": "expected more than {gt}",
    "greater_than_equal": "expected at least {ge}",
    "less_than": "expected less than {lt}",
    "less_than_equal": "expected at most {le}",
    "string_type": "expected a text (put a number or a date in quotes)",
    "string_too_short": "expected {min_length} or more characters",
    "string_too_long": "expected at most {max_length} characters",
    "too_short": "expected {min_length} or more values",
    "too_long": "expected at most {max_length} values",
    "literal_error": "expected {expected}",
    "path_type": "expected a path",
    "tuple_type": 'expected a list, such as ["a", "b"]',
    "model_type": "expected a group of settings, `name: value` lines that are indented",
    "missing": "is required: set it",
}
_MOST_ERRORS: Final = 10  # that are named
_NUMBERS: Final = frozenset({"float_parsing", "float_type", "int_parsing", "int_type"})

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
    sources: dict[str, Tree] = {"flag ": given, _ENVIRONMENT: _environment(model, retired)}
    if file is not None:
        sources[f"{file}: "] = _read(file)
    values: Tree = {}
    for origin, tree in reversed(sources.items()):
        for name in tree:
            if name.startswith("_"):  # BaseSettings takes such arguments for itself
                raise SettingsError(f"{origin}{name}: {_unknown([name], model)}")
        values = _merged(values, _without(tree, retired, origin))
    try:
        return model(**values)
    except ValidationError as error:
        lines = [_sentence(one, sources, model) for one in error.errors()[:_MOST_ERRORS]]
        if (more := error.error_count() - len(lines)) > 0:
            lines.append(f"and {more} more errors")
        raise SettingsError("\n".join(lines)) from error


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
            hint = did_you_mean(variable, (_variable(one, model) for one, _ in fields_of(model)))
            unknown.append(f"environment: {variable}: no such setting{hint}")
    if unknown:
        raise SettingsError("\n".join(unknown))
    try:
        return _merged(found, EnvSettingsSource(model)())
    except VariableError as error:
        field = _QUOTED.search(str(error))  # the library names the field and not the variable
        name = f"{prefix}{field[1].upper()}" if field else "a variable"
        raise SettingsError(f'environment: {name}: not JSON: expected a list such as ["a", "b"]') from error


def _variable(name: str, model: type[ProcessSettings]) -> str:
    delimiter = model.model_config.get("env_nested_delimiter") or "__"
    return model.model_config["env_prefix"] + name.replace(".", delimiter).upper()


def fields_of(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """Yield each setting with its name, `group.name` in a group."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from ((f"{name}.{inner}", one) for inner, one in fields_of(field.annotation))
        else:
            yield name, field


def _unknown(path: Sequence[object], model: type[ProcessSettings]) -> str:
    """Return what is wrong with a name that is no setting, with the most similar name."""
    known = [name for name, _ in fields_of(model)]
    name = ".".join(map(str, path))
    return f"no such setting{did_you_mean(name, [*known, *{one.partition('.')[0] for one in known}])}"


def _read(file: Path) -> Tree:
    try:
        with open(file, "rb", opener=_without_waiting) as stream:
            text = stream.read(MAX_FILE_BYTES + 1)
            is_idle = not text and stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}: name a YAML file of settings (--config)") from error
    if is_idle:
        raise SettingsError(f"{file}: a pipe that no program writes into: name a YAML file of settings")
    if len(text) > MAX_FILE_BYTES:
        raise SettingsError(
            f"{file}: larger than {MAX_FILE_BYTES} bytes: expected a YAML file of settings (--config)"
        )
    try:
        content = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise SettingsError(f"{file}: {line}not YAML: {error.problem}; {_YAML_HINT}") from error
    except ReaderError as error:
        raise SettingsError(
            f"{file}: line {_odd_line(text)}: not YAML: {error.reason}: expected a text file in UTF-8"
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: of UTF-8, or of a date
        raise SettingsError(f"{file}: not YAML: {str(error).splitlines()[0]}; {_YAML_HINT}") from error
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        found = "a name that is no text" if isinstance(content, dict) else _shown(content)
        raise SettingsError(f"{file}: expected `name: value` lines, found {found}")
    return content


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe without a writer is opened at once, and is empty."""
    opened = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(opened, True)
    return opened


def _odd_line(text: bytes) -> int:
    """Return the number of the first line that is not UTF-8 or has a control character."""
    for number, line in enumerate(text.split(b"\n"), 1):
        try:
            if Reader.NON_PRINTABLE.search(line.decode()):
                return number
        except UnicodeDecodeError:
            return number
    return 1


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


def _sentence(error: ErrorDetails, sources: Mapping[str, Tree], model: type[ProcessSettings]) -> str:
    """Return one line: the source, the name as in the file, and what is expected."""
    path = error["loc"]
    if not path:
        return error["msg"].removeprefix("Value error, ")
    origin = next((origin for origin, tree in sources.items() if _is_in(tree, path)), "")
    name = ".".join(map(str, path))
    if origin == _ENVIRONMENT:
        name = _variable(name, model)
    return f"{origin}{name}: {_message(error, model)}"


def _message(error: ErrorDetails, model: type[ProcessSettings]) -> str:
    """Return what is wrong with one value, in the words of this project."""
    kind, path = error["type"], error["loc"]
    if kind == "extra_forbidden":
        return _unknown(path, model)
    expected = _EXPECTED.get(kind)
    if expected is None:
        return error["msg"].removeprefix("Value error, ")
    limits = error.get("ctx", {}).items()
    plain = {name: f"{x:.15g}" if isinstance(x, float) else x for name, x in limits}  # 1.0 is 1
    message = expected.format_map(plain)
    is_time = str(path[-1]).endswith("_s") and not str(path[-1]).endswith("_per_s")
    if is_time and kind in _NUMBERS and isinstance(error["input"], str):
        message = "expected seconds without a unit, such as 10"
    return f"{message}, found {_shown(error['input'])}" if kind != "missing" else message


def _shown(value: object) -> str:
    """Return a value as it is shown in a message."""
    if isinstance(value, dict | list | tuple):
        return "a group" if isinstance(value, dict) else "a list"
    text = "nothing" if value is None or value == "" else repr(value)
    return text if len(text) <= _MAX_FOUND else text[: _MAX_FOUND - 3] + "..."

"""No file holds a local path or an index option; no code uses or overrides a private name of a library."""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support import real
from support.real import ROOT
from support.waiting import TIMEOUT_S


def tracked_files() -> list[Path]:
    """Every committed text file; see `require_real` for where this is no git checkout."""
    real.require_real("git-checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=TIMEOUT_S
    )
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


# --- the helper that the proofs hang on -----------------------------------------------------------


@pytest.mark.parametrize("component", sorted(real.COMPONENTS))
def test_every_component_is_there_or_says_what_to_do(component: str) -> None:
    lack = real.lack_of(component)
    assert lack is None or ":" in lack


# --- nothing leaks --------------------------------------------------------------------------------

# Patterns are put together from pieces, so that this file does not contain what it looks for.
FORBIDDEN = {
    "a path of one machine": "|".join(["/" + "work/", "/tmp/" + "hs", "/" + "root/", "/home/" + "[a-z]"]),
    "the host of a package registry": "|".join(
        [
            "pypi" + r"\.org",
            "python" + "hosted",
            "proxy" + r"\.golang",
            "registry" + r"\.npmjs",
            "crates" + r"\.io",
        ]
    ),
    "an index option": "--" + "(extra-)?index" + "-url[= ]h|--" + "find-links[= ][h/]",
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path in tracked_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if (match := pattern.search(line))
    ]
    assert not found, f"{what}: " + ", ".join(found)


OF_PYDANTIC = {"_abc_impl"}
PACKAGES = (
    "hyperscout_agent",
    "hyperscout_formats",
    "hyperscout_runtime",
    "hyperscout_sim",
    "hyperscout_cli",
    "hyperscout_collector",
    "hyperscout_gates",
    "hyperscout_inference",
    "hyperscout_kubernetes",
    "hyperscout_mqtt",
    "hyperscout_placer",
    "hyperscout_publish",
    "hyperscout_topology",
)


# Public by their libraries' documentation.
DOCUMENTED = {"_replace", "_make", "_fields", "_asdict", "_exit", "_name"}


def python_files() -> list[Path]:
    folders = [ROOT / name for name in ("agent", "collector", "tests", "deploy")]
    found = [path for folder in folders for path in folder.rglob("*.py")]
    return [path for path in found if "node_modules" not in path.parts]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def named_by(node: ast.AST) -> str:
    """The private name that an expression or an import looks up; "" = none."""
    match node:
        case ast.Attribute(attr=name):
            return name if is_private(name) else ""
        case ast.ImportFrom(module=str(module)):
            return next(filter(is_private, module.split(".")), "")
        case ast.Call(
            func=ast.Name(id="getattr" | "setattr" | "hasattr"), args=[_, ast.Constant(value=str(name)), *_]
        ):
            return name if is_private(name) else ""
    return ""


def names_of_others(trees: Mapping[str, ast.Module]) -> list[str]:
    """Where code uses a private name that none of these files defines: it is a library's.

    A name that both define is not found. Of assignments to attributes, only those to attributes of `self` and
    `cls` define a name.
    """
    ours = set(DOCUMENTED)
    for node in (node for tree in trees.values() for node in ast.walk(tree)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                ours.add(name)
            case (
                ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store())
                | ast.Name(id=name, ctx=ast.Store())
            ):
                ours.add(name)
    return [
        f"{path}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if (name := named_by(node)) and name not in ours
    ]


def test_no_private_attribute_is_used_but_our_own() -> None:
    trees = {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in python_files()}
    assert names_of_others(trees) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("library.thing._of_it", ["x.py:1: library.thing._of_it"]),
        ("library.thing._of_it = 1", ["x.py:1: library.thing._of_it"]),
        ("getattr(library, '_of_it')", ["x.py:1: getattr(library, '_of_it')"]),
        ("from library._of_it import thing", ["x.py:1: from library._of_it import thing"]),
        ("self._ours = 1\nother._ours = 2\nother._ours", []),
        ("class _Ours:\n  _also: int\nmodule._Ours()._also", []),
    ],
)
def test_whose_a_private_name_is(text: str, found: list[str]) -> None:
    assert names_of_others({"x.py": ast.parse(text)}) == found


def modules() -> Iterator[Any]:
    for package in map(importlib.import_module, PACKAGES):
        yield package
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def test_no_class_overrides_a_private_member_of_a_library() -> None:
    found = set()
    passed = {*PACKAGES, *sys.stdlib_module_names}
    for module in modules():
        for one in vars(module).values():
            if not isinstance(one, type) or one.__module__ != module.__name__:
                continue
            for base in one.__mro__[1:]:
                if base.__module__.partition(".")[0] not in passed:
                    both = {name for name in vars(one).keys() & vars(base).keys() if is_private(name)}
                    found |= {f"{one.__module__}.{one.__name__}.{name}" for name in both - OF_PYDANTIC}
    assert found == set()

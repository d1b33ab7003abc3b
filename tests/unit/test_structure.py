"""The structure of the product code: sizes of modules, packages and constructors, and the pictures of it."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from support.real import ROOT

MAX_LINES = 400
MAX_MODULES = 15
MAX_PARAMETERS = 12
ONE_FILE_A_PROBE = "agent/hyperscout_agent/probes"
ENTRY_POINTS = {"agent/hyperscout_agent/main.py", "collector/hyperscout_cli/main.py"}

# Facts that are changed in place. Their fields are what they hold, and not what they need to work. A group of
# fields would be a second name for each fact: the events of a state machine set single ones.
MUTABLE_FACTS = {
    (
        "collector/hyperscout_gates/state/gang_state.py",
        "GangFacts",
    ): "the facts of a gang: a replay restores all of them from an event log",
    (
        "collector/hyperscout_collector/decisions/fabric/lease_state.py",
        "Lease",
    ): "the facts of a sweep lease: a replay restores all of them from an event log",
    (
        "collector/hyperscout_inference/fabric/part.py",
        "Part",
    ): "the columns of a network, named as in `Network`: the readers of a fabric fill them in one by one",
}


def modules() -> list[Path]:
    """All product modules that are written by hand."""
    found = [
        path for room in ("agent", "collector", "deploy", "proto") for path in (ROOT / room).rglob("*.py")
    ]
    return [path for path in found if "_pb2" not in path.name and "node_modules" not in path.parts]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_module_is_too_long() -> None:
    sizes = {relative(path): len(path.read_text().splitlines()) for path in modules()}
    assert len(sizes) > 600
    assert {path: size for path, size in sizes.items() if size > MAX_LINES} == {}


def test_no_package_has_too_many_modules() -> None:
    sizes = Counter(relative(path.parent) for path in modules() if path.name != "__init__.py")
    assert ONE_FILE_A_PROBE in sizes
    del sizes[ONE_FILE_A_PROBE]
    assert {package: size for package, size in sizes.items() if size > MAX_MODULES} == {}


def test_no_module_is_beside_packages() -> None:
    packages = {path.parent for path in modules() if path.name == "__init__.py"}
    with_packages = {package.parent for package in packages} & packages
    loose = {
        relative(path) for path in modules() if path.parent in with_packages and path.name != "__init__.py"
    }
    assert loose == ENTRY_POINTS


def test_each_package_says_what_it_is_for() -> None:
    silent = [
        relative(path)
        for path in modules()
        if path.name == "__init__.py"
        and "proto" not in path.parts
        and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def is_frozen_or_settings(cls: ast.ClassDef) -> bool:
    bases = {ast.unparse(base) for base in cls.bases}
    decorators = " ".join(map(ast.unparse, cls.decorator_list))
    return "frozen=True" in decorators or any(re.search(r"Settings|Model", base) for base in bases)


def parameters(cls: ast.ClassDef) -> int:
    """Number of constructor parameters, without those of base classes."""
    for item in cls.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            given = item.args
            return len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
    if "dataclass" not in " ".join(map(ast.unparse, cls.decorator_list)):
        return 0
    fields = [ast.unparse(item) for item in cls.body if isinstance(item, ast.AnnAssign)]
    return sum("ClassVar" not in field and "init=False" not in field for field in fields)


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for path in modules():
        tree = ast.parse(path.read_text())
        yield from ((relative(path), node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def test_no_constructor_has_too_many_parameters() -> None:
    many = {
        (path, cls.name)
        for path, cls in classes()
        if not is_frozen_or_settings(cls) and parameters(cls) > MAX_PARAMETERS
    }
    assert many == MUTABLE_FACTS.keys()


# --- the pictures of the packages -----------------------------------------------------------------


def contract(name: str) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (found,) = [x for x in project["tool"]["importlinter"]["contracts"] if x["name"].startswith(name)]
    return list(found["layers"])


def layers() -> list[set[str]]:
    """The packages of the collector's side, top to bottom."""
    return [set(line.split(" | ")) for line in contract("The collector's layers")]


def architecture() -> str:
    return (ROOT / "docs" / "architecture.md").read_text().split("## Packages\n")[1]


def test_the_list_of_packages_is_the_contract() -> None:
    block = re.search(r"```text\n(.*?)```", architecture(), re.DOTALL)
    assert block is not None
    lines = [re.split(r"  +", line)[0] for line in block[1].splitlines()]
    assert [set(line.split(" | ")) for line in lines] == [*layers(), {"hyperscout"}]


def test_the_picture_of_packages_is_the_contract() -> None:
    """Each arrow leads from one line of the contract to the next one, and each package is in the picture."""
    block = re.search(r"```mermaid\n(.*?)```", architecture(), re.DOTALL)
    assert block is not None
    names = dict(re.findall(r"(\w+)\[([\w.]+)[^\]]*\]", block[1]))
    full = {short: re.sub(r"^\.", "hyperscout_collector.", name) for short, name in names.items()}
    arrows = set()
    for line in block[1].splitlines()[1:]:
        steps = [re.findall(r"\w+", re.sub(r"\[[^\]]*\]", "", step)) for step in line.split("-->")]
        for above, below in pairwise(steps):
            arrows |= {(full[a], full[b]) for a in above for b in below}
    of_contract = [*layers(), {"hyperscout"}]
    expected = {(a, b) for above, below in pairwise(of_contract) for a in above for b in below}
    agent = contract("The agent's layers")[1:]  # the command line is in both contracts
    expected |= {
        (a, b) for above, below in pairwise(agent) for a in above.split(" | ") for b in below.split(" | ")
    }
    assert arrows == expected


def test_the_table_of_packages_has_them_all() -> None:
    table = set(re.findall(r"^\| `(?:\w+/)?([\w./]+)` \|", architecture(), re.MULTILINE))
    assert set().union(*layers()) - table == set()

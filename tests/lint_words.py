"""Checks the wording of code and tests: texts name the program or device instead of using a personal pronoun.

It reads comments, docstrings, strings and function names of Python (tests included), the wire contract, the
map's sources, all files of deploy/, and the pages. In pages "who" may stand for a person. This file is not
read: it holds the words. Each hit is printed as `file:line: text`, then the number of hits for each package.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_WORD = r"(who(m|ever)?|(no|some|any|every)bodys?|(some|any|every)one|no one)"
WORDS = re.compile(rf"\b{_WORD}\b", re.IGNORECASE)
ANYWHERE = re.compile(rf"{_WORD}\b", re.IGNORECASE)  # in source text an escape may stand before a word
PAGE_WORDS = re.compile(r"\b(who(m)?ever|(no|some|any|every)body)\b", re.IGNORECASE)
SOURCES = (
    "agent/*.py",
    "collector/*.py",
    "proto/*.py",
    "proto/*.proto",
    "collector/map/src/*",
    "deploy",
    "tests/*.py",
    "*.md",
    ":!tests/lint_words.py",
)
GENERATED = re.compile(r"_pb2(_grpc)?\.py$|^deploy/(chart/files/dashboards|grafana)/.*\.json$")


def spaced(name: str) -> str:
    """The words of a name, apart."""
    return name.replace("_", " ")


def python_hits(source: str) -> Iterator[int]:
    """Line numbers of comments, strings and function names with one of the words; variables do not count."""
    if not ANYWHERE.search(spaced(source)):  # most files: no need to parse them
        return
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and WORDS.search(token.string):
            yield token.start[0]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and WORDS.search(node.value):
            span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            yield from [n for n in span if WORDS.search(lines[n - 1])] or [node.lineno]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and WORDS.search(spaced(node.name)):
            yield node.lineno


def text_hits(source: str, words: re.Pattern[str]) -> Iterator[int]:
    """The same for a file that is not Python: every line counts."""
    return (n for n, line in enumerate(source.splitlines(), 1) if words.search(line))


def main() -> int:
    """Print all hits; 1 where there is one."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--", *SOURCES]
    paths = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    found: Counter[str] = Counter()
    for path in filter(None, paths):
        file = ROOT / path
        if GENERATED.search(path) or not file.is_file():
            continue
        source = file.read_text(encoding="utf-8")
        if path.endswith(".py"):
            hits = python_hits(source)
        else:
            hits = text_hits(source, PAGE_WORDS if path.endswith(".md") else WORDS)
        for n in sorted(set(hits)):
            print(f"{path}:{n}: {source.splitlines()[n - 1].strip()}")
            found["/".join(path.split("/")[:2])] += 1
    for package, count in found.most_common():
        print(f"{count:5} {package}", file=sys.stderr)
    if found:
        print("name the program, device or person that acts", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

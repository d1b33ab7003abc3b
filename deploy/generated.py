"""Writes generated files that are committed, or says which of them are stale."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def stale(texts: Mapping[Path, str], folder: Path | None = None) -> Iterator[Path]:
    """Files that are missing or differ, and those in `folder` that are no longer wanted."""
    there = {path for path in folder.rglob("*") if path.is_file()} if folder else set()
    for path in sorted(there | texts.keys()):
        if not path.is_file() or path.read_text("utf-8") != texts.get(path):
            yield path


def run(target: str, texts: Mapping[Path, str], arguments: Sequence[str], folder: Path | None = None) -> int:
    """The command `make TARGET`: with --check, exit status 1 if a file is stale; else write the files.

    `folder`: delete its other files.
    """
    found = list(stale(texts, folder))
    names = ", ".join(str(path.relative_to(ROOT)) for path in found)
    if list(arguments) == ["--check"]:
        if found:
            print(f"stale, run `make {target}`: {names}", file=sys.stderr)
        return 1 if found else 0
    for path in found:
        if path in texts:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[path], "utf-8")
        else:
            path.unlink()
    print(f"{target}: {len(texts)} files, {len(found)} changed{': ' * bool(found)}{names}")
    return 0

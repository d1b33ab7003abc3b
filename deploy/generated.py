"""Writes generated files that are committed."""

from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def stale(texts: Mapping[Path, str], folder: Path | None = None) -> Iterator[Path]:
    """Files that are missing or differ, and those in `folder` that are no longer wanted."""
    there = {path for path in folder.rglob("*") if path.is_file()} if folder else set()
    for path in sorted(there | texts.keys()):
        if not path.is_file() or path.read_text("utf-8") != texts.get(path):
            yield path


def run(target: str, texts: Mapping[Path, str], folder: Path | None = None) -> None:
    """Write the files of `make TARGET`. `folder`: delete its other files."""
    found = list(stale(texts, folder))
    for path in found:
        if path in texts:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[path], "utf-8")
        else:
            path.unlink()
    names = ", ".join(str(path.relative_to(ROOT)) for path in found)
    print(f"{target}: {len(texts)} files, {len(found)} changed{': ' * bool(found)}{names}")

"""Runs the commands that the pages mark as runnable, and compares their output with the page.

    make docs-assets                      write the outputs into the pages
    deploy/console.py --check [PAGE...]   print the differences; exit status 1 if there is one

A fenced block of the language `console` after a line `<!-- runnable -->` holds commands behind `$ ` and what
they print, standard error included. The commands of a page run in order in a folder of their own, which has a
copy of examples/. They query no network.
"""

import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
BLOCK = re.compile(r"(?<=^<!-- runnable -->\n```console\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
_TIMEOUT_S = 120


def documents() -> Iterator[Path]:
    """README and the pages with a runnable block."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if BLOCK.search(page.read_text("utf-8")):
            yield page


def fresh(text: str) -> str:
    """The text of a page with the outputs of now."""
    with tempfile.TemporaryDirectory(prefix="hyperscout-docs-") as scratch:
        folder = Path(scratch)
        shutil.copytree(EXAMPLES, folder / "examples")
        return BLOCK.sub(lambda match: "".join(transcript(match[1], partial(_run, folder))), text)


def transcript(block: str, run: Callable[[str], str]) -> Iterator[str]:
    """The lines of a block with the outputs of now; `run` returns what a command prints."""
    for command in _commands(block):
        yield f"$ {command}\n"
        yield from (f"{line.rstrip()}\n" for line in run(command).splitlines())


def _commands(block: str) -> Iterator[str]:
    """Commands behind `$ `; one that ends with a backslash goes on in the next line."""
    lines = iter(block.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command += "\n" + next(lines)
            yield command


def _run(folder: Path, command: str) -> str:
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "COLUMNS": "100",
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    return done.stdout


def main(arguments: Sequence[str]) -> int:
    """Run `make docs-assets`, or its check."""
    check = "--check" in arguments
    named = [Path(word).resolve() for word in arguments if word != "--check"]
    status = 0
    for page in named or documents():
        old = page.read_text("utf-8")
        new = fresh(old)
        if new == old:
            continue
        status = 1
        name = str(page.relative_to(ROOT))
        if check:
            sys.stdout.writelines(
                difflib.unified_diff(old.splitlines(True), new.splitlines(True), name, "now")
            )
        else:
            page.write_text(new, "utf-8")
            print(f"{name}: outputs written")
    return status if check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Runs the commands that the pages mark as runnable, and writes their outputs.

`make docs-assets` writes the outputs into the pages; `tests/integration/test_console.py` compares them.

A fenced block of the language `console` after a line `<!-- runnable -->` holds commands behind `$ ` and what
they print, standard error included. The commands of a page run in order in a folder of their own, which has a
copy of examples/. They query no network.

After `<!-- runnable: live -->` or `<!-- runnable: live infiniband -->`, the commands query the collector of a
simulated cluster (`live_cluster.py`), one for each page and kind. What differs from run to run counts as
equal (`masked`): durations, times, addresses with ports, numbers of generations, and the number of blanks.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
BLOCK = re.compile(
    r"^(<!-- runnable(?:: (?P<live>live|live infiniband))? -->\n```console\n)(?P<lines>.*?)(?=^```$)",
    re.MULTILINE | re.DOTALL,
)
_CLUSTERS = {"live": "ethernet", "live infiniband": "infiniband"}
_MASKS = [
    (re.compile(pattern), mask)
    for pattern, mask in (
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", "TIME"),
        (r"(?:\b\d{1,3}(?:\.\d{1,3}){3}|\blocalhost|\[[0-9a-f:]+\]):\d+\b", "ADDRESS"),
        (r"\b([Gg]eneration\"?[ :=]+)\d+\b", r"\1N"),
        (r"(?<![\w.:-])(?:\d+(?:\.\d+)? ?[smhdw])+\b", "DURATION"),
        (r" +", " "),
    )
]
_TIMEOUT_S = 120


def documents() -> Iterator[Path]:
    """README and the pages with a runnable block."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if BLOCK.search(page.read_text("utf-8")):
            yield page


def fresh(text: str) -> str:
    """The text of a page with the outputs of now. Raises RuntimeError if a simulated cluster fails."""
    with tempfile.TemporaryDirectory(prefix="hyperscout-docs-") as scratch, ExitStack() as clusters:
        folder = Path(scratch)
        shutil.copytree(EXAMPLES, folder / "examples")
        running: dict[str, str] = {}

        def block(match: re.Match[str]) -> str:
            live = match["live"]
            if live and live not in running:
                running[live] = clusters.enter_context(_cluster(_CLUSTERS[live]))
            variables = {"HYPERSCOUT_COLLECTOR": running[live]} if live else {}
            return match[1] + "".join(transcript(match["lines"], partial(_run, folder, variables)))

        return BLOCK.sub(block, text)


def masked(text: str) -> str:
    """The text of a page, in whose live blocks a mask replaces what differs from run to run."""

    def block(match: re.Match[str]) -> str:
        lines = match["lines"]
        for pattern, mask in _MASKS if match["live"] else ():
            lines = pattern.sub(mask, lines)
        return match[1] + lines

    return BLOCK.sub(block, text)


@contextmanager
def _cluster(kind: str) -> Iterator[str]:
    """The address of the collector of a simulated cluster. It ends at the end of its standard input."""
    with (
        tempfile.TemporaryDirectory(prefix="hyperscout-docs-") as scratch,
        tempfile.TemporaryFile("w+") as log,
    ):
        command = [sys.executable, str(Path(__file__).with_name("live_cluster.py")), kind, scratch]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process:
            assert process.stdout is not None  # noqa: S101 (it is a pipe)
            address = process.stdout.readline().strip()
            if not address:
                process.wait(_TIMEOUT_S)
                log.seek(0)
                raise RuntimeError(log.read())
            yield address


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


def _run(folder: Path, variables: Mapping[str, str], command: str) -> str:
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "COLUMNS": "100",
        **variables,
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


def main() -> None:
    """Run the last part of `make docs-assets`."""
    for page in documents():
        old = page.read_text("utf-8")
        new = fresh(old)
        if masked(new) != masked(old):
            page.write_text(new, "utf-8")
            print(f"{page.relative_to(ROOT)}: outputs written")


if __name__ == "__main__":
    main()

"""Runs the commands that the pages mark as runnable, and writes their outputs.

`make docs-assets` writes the outputs into the pages; `tests/integration/test_console.py` compares them.

A fenced block of the language `console` after a line `<!-- runnable -->` holds commands behind `$ ` and what
they print, standard error included. The commands of a page run in order in a folder of their own, which has a
copy of examples/. They query no network.

After `<!-- runnable: live -->` or `<!-- runnable: live infiniband -->`, the commands query the collector of a
simulated cluster (`live_cluster.py`), one for each page and kind; `$url` is its REST interface. What differs
from run to run counts as equal (`masked`): durations, times, addresses with ports, numbers of generations
and findings, the agents that sweep, and the number of blanks.

After `<!-- runnable: live kubernetes -->`, the collector also publishes to the API server that KUBECONFIG
names, and kubectl queries that one. `console.py --kubernetes` runs these blocks and no others.
`tests/real/kubernetes/test_console.py` compares them.
"""

import json
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
    r"^(<!-- runnable(?:: (?P<live>live(?: infiniband| kubernetes)?))? -->\n```console\n)"
    r"(?P<lines>.*?)(?=^```$)",
    re.MULTILINE | re.DOTALL,
)
_KUBERNETES = "live kubernetes"
_CLUSTERS = {"live": "ethernet", "live infiniband": "infiniband", _KUBERNETES: "kubernetes"}
_MASKS = [
    (re.compile(pattern), mask)
    for pattern, mask in (
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", "TIME"),
        (r"(?:\b\d{1,3}(?:\.\d{1,3}){3}|\blocalhost|\[[0-9a-f:]+\]):\d+\b", "ADDRESS"),
        (r"\b([Gg]eneration\"?[ :=]+)\d+\b", r"\1N"),
        (r"\b(Findings: +)\d+\b", r"\1N"),  # an agent that ever swept keeps one for each port
        (r"(?<![\w.:-])(?:\d+(?:\.\d+)? ?[smhdw])+\b", "DURATION"),
        (r"\bnode-\d+( +\S+ +DURATION +DURATION)\b", r"NODE\1"),  # the agent that has the lease of a sweep
        (r" +", " "),
    )
]
_TIMEOUT_S = 120
_NOT_FOUND = 127  # the exit status of bash for a command that is not installed


def documents(*, kubernetes: bool = False) -> Iterator[Path]:
    """README and the pages with a block that `fresh` runs."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        blocks = BLOCK.finditer(page.read_text("utf-8"))
        if any((match["live"] == _KUBERNETES) == kubernetes for match in blocks):
            yield page


def fresh(text: str, *, kubernetes: bool = False) -> str:
    """The text of a page with the outputs of now.

    `kubernetes`: run only the blocks that need an API server; otherwise only the others. Raises RuntimeError
    if a simulated cluster fails or a program is missing.
    """
    with tempfile.TemporaryDirectory(prefix="hyperscout-docs-") as scratch, ExitStack() as clusters:
        folder = Path(scratch)
        shutil.copytree(EXAMPLES, folder / "examples")
        running: dict[str | None, Mapping[str, str]] = {None: {}}

        def block(match: re.Match[str]) -> str:
            live = match["live"]
            if (live == _KUBERNETES) != kubernetes:
                return match[0]
            if live not in running:
                running[live] = clusters.enter_context(_cluster(_CLUSTERS[live]))
            return match[1] + "".join(transcript(match["lines"], partial(_run, folder, running[live])))

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
def _cluster(kind: str) -> Iterator[Mapping[str, str]]:
    """Variables by which commands find a simulated cluster. It ends at the end of its standard input."""
    with (
        tempfile.TemporaryDirectory(prefix="hyperscout-docs-") as scratch,
        tempfile.TemporaryFile("w+") as log,
    ):
        command = [sys.executable, str(Path(__file__).with_name("live_cluster.py")), kind, scratch]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process:
            assert process.stdout is not None  # noqa: S101 (it is a pipe)
            variables = process.stdout.readline()
            if not variables:
                process.wait(_TIMEOUT_S)
                log.seek(0)
                raise RuntimeError(log.read())
            yield json.loads(variables)


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
    if done.returncode == _NOT_FOUND:
        raise RuntimeError(done.stdout)
    return done.stdout


def main() -> None:
    """Write the outputs into the pages."""
    kubernetes = "--kubernetes" in sys.argv
    for page in documents(kubernetes=kubernetes):
        old = page.read_text("utf-8")
        try:
            new = fresh(old, kubernetes=kubernetes)
        except RuntimeError as error:
            sys.exit(f"{page.relative_to(ROOT)}: {error}")
        if masked(new) != masked(old):
            page.write_text(new, "utf-8")
            print(f"{page.relative_to(ROOT)}: outputs written")


if __name__ == "__main__":
    main()

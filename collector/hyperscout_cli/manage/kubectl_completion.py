"""`kubectl_complete-hyperscout`: completes `kubectl hyperscout` for kubectl.

kubectl runs it with the words of the command line; the last one is being typed and may be empty. The output
has the format of cobra's hidden command __complete: one line for each word with a description after a tab,
then a colon with a bit mask (kubectl, `pkg/cmd/plugin_completion.go`; cobra, ShellCompDirective).
"""

import os
import sys

from click.shell_completion import CompletionItem, ShellComplete

from hyperscout_cli.main import COMPLETE_VARIABLE, cli, quietly

_NO_FILES, _FILES, _FOLDERS = 4, 0, 16


def main() -> None:
    """The entry point. It prints only words, and never fails."""
    quietly(lambda: sys.stdout.write(completed(sys.argv[1:])))


def completed(words: list[str]) -> str:
    """The output for kubectl."""
    *before, incomplete = words or [""]
    shell = ShellComplete(cli, {}, "kubectl hyperscout", COMPLETE_VARIABLE)
    items = shell.get_completions(before, incomplete)
    types = {item.type for item in items}
    directive = _FILES if "file" in types else _FOLDERS if "dir" in types else _NO_FILES
    lines = [_line(item) for item in items if item.type == "plain"]
    return "".join(f"{line}{os.linesep}" for line in (*lines, f":{directive}"))


def _line(item: CompletionItem) -> str:
    return f"{item.value}\t{item.help}" if item.help else str(item.value)

"""`kubectl_complete-hyperscout`: completion of `kubectl hyperscout`, as kubectl asks its plugins for it.

kubectl runs it with the words of the command line, the last of which is being typed (it may be empty), and
reads what cobra's hidden command __complete prints: a line a word, a description behind a tab, and last a
colon with a bit mask (kubectl, `pkg/cmd/plugin_completion.go`; cobra, ShellCompDirective).
"""

import os
import sys

from click.shell_completion import CompletionItem, ShellComplete

from hyperscout_cli.main import COMPLETE_VARIABLE, cli, quietly

_NO_FILES, _FILES, _FOLDERS = 4, 0, 16


def main() -> None:
    """The entry point; never says anything but words, and never fails."""
    quietly(lambda: sys.stdout.write(completed(sys.argv[1:])))


def completed(words: list[str]) -> str:
    """What kubectl reads."""
    *before, incomplete = words or [""]
    shell = ShellComplete(cli, {}, "kubectl hyperscout", COMPLETE_VARIABLE)
    items = shell.get_completions(before, incomplete)
    types = {item.type for item in items}
    directive = _FILES if "file" in types else _FOLDERS if "dir" in types else _NO_FILES
    lines = [_line(item) for item in items if item.type == "plain"]
    return "".join(f"{line}{os.linesep}" for line in (*lines, f":{directive}"))


def _line(item: CompletionItem) -> str:
    return f"{item.value}\t{item.help}" if item.help else str(item.value)

"""`hyperscout completion`: prints the script that adds completion to a shell."""

import click
from click.shell_completion import ShellComplete, get_completion_class

from hyperscout_cli.main import COMPLETE_VARIABLE, cli
from hyperscout_cli.shared.command import Command
from hyperscout_cli.shared.output import emit


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  bash:  eval "$(hyperscout completion bash)"           (in ~/.bashrc)
  zsh:   eval "$(hyperscout completion zsh)"            (in ~/.zshrc, after compinit)
  fish:  mkdir -p ~/.config/fish/completions
         hyperscout completion fish > ~/.config/fish/completions/hyperscout.fish""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL."""
    emit([script(shell), "\n"])


def script(shell: str) -> str:
    """The completion script for bash, zsh or fish."""
    found = get_completion_class(shell)
    assert found is not None  # noqa: S101 (click knows bash, zsh and fish)
    complete = found(cli, {}, "hyperscout", COMPLETE_VARIABLE)
    # click's bash class starts bash to check its version, which may differ from the user's.
    return ShellComplete.source(complete)

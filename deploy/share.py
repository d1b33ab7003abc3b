"""Writes deploy/share: manual pages and completion scripts, which a wheel installs under `share/`.

`make man` runs it.
"""

from pathlib import Path

import generated
import man
from hyperscout_cli.manage.completion import script

SHARE = generated.ROOT / "deploy" / "share"
# Where each shell searches below a prefix's `share`.
_SCRIPTS = {
    "bash": "bash-completion/completions/hyperscout",
    "zsh": "zsh/site-functions/_hyperscout",
    "fish": "fish/vendor_completions.d/hyperscout.fish",
}


def files() -> dict[Path, str]:
    """The text of each file."""
    pages = {SHARE / "man" / f"man{man.SECTION}" / name: text for name, text in man.pages().items()}
    return pages | {SHARE / path: script(shell) for shell, path in _SCRIPTS.items()}


if __name__ == "__main__":
    generated.run("man", files(), SHARE)

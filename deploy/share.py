"""Writes deploy/share: manual pages and completion scripts, which a wheel installs under `share/`.

make man                    write them
deploy/share.py --check     exit status 1 if a committed file is stale
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import man
from hyperscout_cli.manage.completion import script

ROOT = Path(__file__).resolve().parents[1]
SHARE = ROOT / "deploy" / "share"
# Where each shell searches below a prefix's `share`.
_SCRIPTS = {
    "bash": "bash-completion/completions/hyperscout",
    "zsh": "zsh/site-functions/_hyperscout",
    "fish": "fish/vendor_completions.d/hyperscout.fish",
}


def files() -> dict[Path, str]:
    """The text of each file, by its path below `share`."""
    pages = {Path("man", f"man{man.SECTION}", name): text for name, text in man.pages().items()}
    return pages | {Path(path): script(shell) for shell, path in _SCRIPTS.items()}


def stale(wanted: dict[Path, str]) -> Iterator[Path]:
    """Files that are missing, differ, or are no longer wanted."""
    there = {path.relative_to(SHARE) for path in SHARE.rglob("*") if path.is_file()}
    for path in sorted(there | wanted.keys()):
        if path not in there or wanted.get(path) != (SHARE / path).read_text("utf-8"):
            yield path


def main(arguments: Sequence[str]) -> int:
    """Run `make man`."""
    wanted = files()
    found = list(stale(wanted))
    if list(arguments) == ["--check"]:
        if found:
            print(f"deploy/share is stale, run `make man`: {', '.join(map(str, found))}", file=sys.stderr)
        return 1 if found else 0
    for path in found:
        file = SHARE / path
        if path in wanted:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(wanted[path], "utf-8")
        else:
            file.unlink()
    print(f"{SHARE.relative_to(ROOT)}: {len(wanted)} files, {len(found)} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Derives the commands of lldpd's tools. `lldpctl` and `lldpcli` are one program with two names."""

from collections.abc import Sequence
from pathlib import PurePath


def lldpcli_of(lldpctl: Sequence[str]) -> tuple[str, ...] | None:
    """Return the command with `lldpcli` in place of `lldpctl`, None when it contains no `lldpctl`."""
    words = [
        str(PurePath(word).with_name("lldpcli")) if PurePath(word).name == "lldpctl" else word
        for word in lldpctl
    ]
    return tuple(words) if words != list(lldpctl) else None

"""How lldpd's tools are called. `lldpctl` and `lldpcli` are one program that goes by its name."""

from collections.abc import Sequence
from pathlib import PurePath


def lldpcli_of(lldpctl: Sequence[str]) -> tuple[str, ...] | None:
    """The same command with `lldpcli`, which is the same program, in place of `lldpctl`; None where it is not
    in it."""
    words = [
        str(PurePath(word).with_name("lldpcli")) if PurePath(word).name == "lldpctl" else word
        for word in lldpctl
    ]
    return tuple(words) if words != list(lldpctl) else None

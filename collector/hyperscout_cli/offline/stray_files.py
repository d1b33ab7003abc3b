"""Says which option of `infer` a file needs that was given without one."""

import re
from collections.abc import Sequence

import click
from hyperscout_formats.infiniband.ibnetdiscover_text import HEAD_BYTES, is_sweep

from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.shared.files import read_head

_FORMS = (
    (re.compile(rb"<nvidia_smi_log>"), "--nvlink"),
    (re.compile(rb'\A\s*\{\s*"lldp"'), "--lldp"),
    (re.compile(rb"\A\s*node_a,node_b,rtt_us"), "--latency"),
    (re.compile(rb"^\.?1\.(?:0\.8802|3\.6)\.[0-9.]+ ?[=|]", re.MULTILINE), "--snmpwalk"),
)


def no_option(path: str, options: Sequence[str]) -> click.UsageError:
    """The error of a file without an option. It names that of `options` that fits the file's content."""
    try:
        head = read_head(path, HEAD_BYTES)
    except CliError as error:
        return click.UsageError(f"{error.message}; a file needs an option, such as --ibnetdiscover FILE")
    option = "--ibnetdiscover" if is_sweep(head) else ""
    option = option or next((name for form, name in _FORMS if form.search(head)), "")
    if option:
        return click.UsageError(f"{path}: a file needs an option: use {option} FILE, here `{option} {path}`")
    return click.UsageError(f"{path}: a file needs the option of its kind: one of {', '.join(options)}")

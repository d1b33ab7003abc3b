"""Says which option of `infer` a file needs that was given without one."""

import re

import click
from hyperscout_formats.infiniband.ibnetdiscover_text import is_sweep

from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.shared.files import read_bytes

OF_EVIDENCE = (
    "--ibnetdiscover",
    "--lldp",
    "--snmpwalk",
    "--nvlink",
    "--latency",
    "--ufm",
    "--netq",
    "--nmx",
    "--node-labels",
)
_HEAD = 65_536  # bytes that are searched
_FORMS = (
    (re.compile(rb"<nvidia_smi_log>"), "--nvlink"),
    (re.compile(rb'\A\s*\{\s*"lldp"'), "--lldp"),
    (re.compile(rb"\A\s*node_a,node_b,rtt_us"), "--latency"),
    (re.compile(rb"^\.?1\.(?:0\.8802|3\.6)\.[0-9.]+ ?[=|]", re.MULTILINE), "--snmpwalk"),
)


def no_option(path: str) -> click.UsageError:
    """The error of a file without an option. It names the option that fits the file's content."""
    try:
        head = read_bytes(path)[:_HEAD]
    except CliError as error:
        return click.UsageError(f"{error.message}; a file needs an option, such as --ibnetdiscover FILE")
    option = "--ibnetdiscover" if is_sweep(head) else ""
    option = option or next((name for form, name in _FORMS if form.search(head)), "")
    if option:
        return click.UsageError(f"{path}: a file needs an option: use {option} FILE, here `{option} {path}`")
    return click.UsageError(f"{path}: a file needs the option of its kind: one of {', '.join(OF_EVIDENCE)}")

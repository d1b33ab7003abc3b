"""The limit of open files, for commands with thousands of connections."""

import resource

import click

OTHER_FILES = 512  # open files of a process that are no agent's connection
_UNLIMITED = 1 << 30


def raise_open_files() -> int:
    """Raise the limit of open files of this process and its children to the hard limit, and return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return _UNLIMITED if hard == resource.RLIM_INFINITY else hard


def check_open_files(needed: int, most: int, *, process: str, flag: str, processes: int = 1) -> None:
    """Raise UsageError if `needed` connections of a process do not fit into `most` open files.

    `process`: the process that has them. `flag`: the option for the number of connections, which `processes`
    processes share.
    """
    if needed + OTHER_FILES > most:
        raise click.UsageError(
            f"{process} needs {needed + OTHER_FILES} open files, and a process may open {most}: give at most "
            f"{flag} {max(0, most - OTHER_FILES) * processes}, or raise the hard limit (`ulimit -Hn`)"
        )

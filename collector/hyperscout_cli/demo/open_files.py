"""The limit of open files, for commands with thousands of connections."""

import resource

OTHER_FILES = 512  # open files of a process that are no agent's connection
_UNLIMITED = 1 << 30


def raise_open_files() -> int:
    """Raise the limit of open files of this process and its children to the hard limit, and return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return _UNLIMITED if hard == resource.RLIM_INFINITY else hard

"""Reads node lists: the nodes of a cluster, one name or host list (`gpu-[01-16]`) on each line."""

import io
import re
from typing import Final

from hyperscout_formats.text import host_list
from hyperscout_formats.text.errors import FormatError

MAX_BYTES: Final = 64 << 20
MAX_NAMES: Final = 1_000_000
MAX_NAME: Final = 253  # RFC 1123: the longest host name, and the longest name of a Kubernetes node
_FOLDED = re.compile(r'[\[\],"]')


def parse(data: bytes, source: str = "node list") -> list[str]:
    """Return names in order, each once. `#` begins a comment.

    Raises FormatError with the number of an invalid line. No line is skipped: a node that is missing here
    would be treated as not part of the cluster.
    """
    if len(data) > MAX_BYTES:
        raise FormatError(source, 0, f"{len(data)} bytes; expected at most {MAX_BYTES} bytes")
    names: dict[str, None] = {}
    for number, line in enumerate(io.BytesIO(data), 1):
        content = line.split(b"#", 1)[0].strip()
        if not content:
            continue
        try:
            text = content.decode("utf-8")
            these = host_list.expand(text) if _FOLDED.search(text) else [text]
        except UnicodeDecodeError as error:
            raise FormatError(source, number, f"not UTF-8: {error.reason}") from error
        except host_list.HostListError as error:
            raise FormatError(source, number, str(error)) from error
        for name in these:
            _check(name, source, number)
        names.update(dict.fromkeys(these))
        if len(names) > MAX_NAMES:
            raise FormatError(source, number, f"more than {MAX_NAMES} names")
    return list(names)


def _check(name: str, source: str, number: int) -> None:
    if len(name) > MAX_NAME:
        raise FormatError(source, number, f"a name of {len(name)} characters; expected at most {MAX_NAME}")
    if not name.isprintable() or any(character.isspace() for character in name):
        raise FormatError(source, number, f"expected one node name or host list on each line, found {name!a}")

"""The process that takes LLDP frames apart: scapy, its memory and hostile frames stay in here.

Reads frames from stdin, answers on stdout, each with its length in four bytes before it (big-endian). An
answer is JSON: {"neighbour": {...}} or {"error": "..."}. Ends when stdin ends. Started by the agent,
which kills it when it takes too long.
"""

import json
import resource
import struct
import sys
from dataclasses import asdict

LENGTH = struct.Struct("!I")
MAX_REQUEST_BYTES = 16 * 1024
_MEMORY_BYTES = 1024 * 1024 * 1024


def main() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from hyperscout_formats.lldp.frame import dissect
    from hyperscout_formats.text.errors import FormatError

    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while len(head := requests.read(LENGTH.size)) == LENGTH.size:
        (size,) = LENGTH.unpack(head)
        if size > MAX_REQUEST_BYTES:
            return 1
        frame = requests.read(size)
        if len(frame) < size:
            return 1
        try:
            answer: dict[str, object] = {"neighbour": asdict(dissect(frame))}
        except FormatError as error:
            answer = {"error": error.reason}
        text = json.dumps(answer).encode()
        answers.write(LENGTH.pack(len(text)) + text)
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())

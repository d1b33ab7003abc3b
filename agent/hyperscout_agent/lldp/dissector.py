"""Dissects LLDP frames in a separate process, which isolates scapy, its memory and hostile frames.

The process reads frames from stdin and writes answers to stdout. Each message follows its length in four
bytes (big-endian). An answer is JSON: {"neighbour": {...}} or {"error": "..."}. The process ends when stdin
ends. The agent starts it, and kills it when an answer takes too long.
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

"""Dissects LLDP frames in a separate process, which isolates scapy, its memory and hostile frames.

The process reads one frame a line from stdin, as hexadecimal digits, and answers each with a line of JSON:
{"neighbour": {...}} or {"error": "..."}. It ends when stdin ends. `dissection` starts and kills it.
"""

import json
import resource
import sys
from dataclasses import asdict

_MEMORY_BYTES = 1024 * 1024 * 1024


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from hyperscout_formats.lldp.frame import dissect
    from hyperscout_formats.text.errors import FormatError

    for line in sys.stdin:
        try:
            answer: dict[str, object] = {"neighbour": asdict(dissect(bytes.fromhex(line)))}
        except FormatError as error:
            answer = {"error": error.reason}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

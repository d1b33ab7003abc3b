"""Switches that answer SNMP v2c out of recordings, hundreds of them in one thread, and some that misbehave.

snmpd and snmpsim are real, but snmpd has nothing to say about 64 neighbours and snmpsim takes longer for an
answer than a crawler to ask. This one costs a few microseconds a row, so that a crawl can be measured; and it
does what no well-behaved agent does: it answers garbage, walks that never end or run backwards.

    python tests/support/snmp_responder.py PORT ADDRESS=FILE.snmprec... ADDRESS=silent...

answers until its standard input ends.
"""

import contextlib
import random
import selectors
import socket
import sys
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

Oid = tuple[int, ...]
# RFC 1157 and RFC 3416: tags of requests and of what comes back.
GET, GET_NEXT, RESPONSE, GET_BULK = 0xA0, 0xA1, 0xA2, 0xA5
INTEGER, OCTETS, NULL, OBJECT, SEQUENCE, END_OF_MIB = 0x02, 0x04, 0x05, 0x06, 0x30, 0x82
MAX_ANSWER_BYTES = 1400  # as switches do: no fragments
NO_ERROR, GENERAL_ERROR = 0, 5


def _length(size: int) -> bytes:
    if size < 0x80:
        return bytes((size,))
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((0x80 | len(octets), *octets))


def tlv(tag: int, content: bytes) -> bytes:
    return bytes((tag,)) + _length(len(content)) + content


def integer(number: int, tag: int = INTEGER) -> bytes:
    return tlv(tag, number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))


def oid_bytes(oid: Oid) -> bytes:
    found = bytearray((oid[0] * 40 + oid[1],))
    for arc in oid[2:]:
        septets = [arc & 0x7F]
        while arc := arc >> 7:
            septets.append(0x80 | arc & 0x7F)
        found += bytes(reversed(septets))
    return bytes(found)


def varbind(oid: Oid, value: bytes) -> bytes:
    return tlv(SEQUENCE, tlv(OBJECT, oid_bytes(oid)) + value)


@dataclass(frozen=True, slots=True)
class Request:
    """What the client asked."""

    version: int
    community: bytes
    kind: int
    number: int
    non_repeaters: int
    repetitions: int
    oids: tuple[Oid, ...]


def _read(data: bytes, at: int = 0) -> tuple[int, bytes, int]:
    """Tag, content and where the next element begins."""
    tag, size, at = data[at], data[at + 1], at + 2
    if size & 0x80:
        octets = size & 0x7F
        size, at = int.from_bytes(data[at : at + octets], "big"), at + octets
    return tag, data[at : at + size], at + size


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    while at < len(data):
        tag, content, at = _read(data, at)
        found.append((tag, content))
    return found


def _oid(content: bytes) -> Oid:
    arcs, arc = [content[0] // 40, content[0] % 40], 0
    for octet in content[1:]:
        arc = arc << 7 | octet & 0x7F
        if not octet & 0x80:
            arcs.append(arc)
            arc = 0
    return tuple(arcs)


def request(data: bytes) -> Request:
    (_, version), (_, community), (kind, body) = _elements(_read(data)[1])[:3]
    if kind not in (GET, GET_NEXT, GET_BULK):
        raise ValueError("not a request")
    number, second, third, binds = (content for _, content in _elements(body))
    oids = tuple(_oid(_elements(pair)[0][1]) for _, pair in _elements(binds))
    signed = [int.from_bytes(x, "big", signed=True) for x in (version, number, second, third)]
    return Request(signed[0], community, kind, signed[1], signed[2], signed[3], oids)


def answer(asked: Request, binds: Iterable[bytes], error: int = NO_ERROR) -> bytes:
    body = integer(asked.number) + integer(error) + integer(bool(error)) + tlv(SEQUENCE, b"".join(binds))
    return tlv(SEQUENCE, integer(asked.version) + tlv(OCTETS, asked.community) + tlv(RESPONSE, body))


class Table:
    """What one switch knows, in order. `values` are encoded."""

    def __init__(self, values: Mapping[Oid, bytes]) -> None:
        self._oids = sorted(values)
        self._binds = [varbind(oid, values[oid]) for oid in self._oids]

    @classmethod
    def of_snmprec(cls, text: str) -> "Table":
        """Tags of a recording are those of BER; an x after one says that the value is in hex, and may lie."""
        values = {}
        for line in filter(None, text.split("\n")):
            oid, tag, value = line.split("|", 2)
            octets = value.encode()
            if tag.endswith("x"):
                with contextlib.suppress(ValueError):
                    octets = bytes.fromhex(value)
            values[_dotted(oid)] = _encoded(int(tag.rstrip("x")), octets, value)
        return cls(values)

    def __len__(self) -> int:
        return len(self._oids)

    def answer(self, asked: Request) -> bytes:
        if asked.kind == GET:
            return answer(asked, [self._exactly(oid) for oid in asked.oids])
        fixed = asked.non_repeaters if asked.kind == GET_BULK else len(asked.oids)
        binds = [self._after(oid) for oid in asked.oids[:fixed]]
        columns = [bisect_right(self._oids, oid) for oid in asked.oids[fixed:]]
        size = sum(map(len, binds))
        for step in range(asked.repetitions if asked.kind == GET_BULK else 0):
            for oid, column in zip(asked.oids[fixed:], columns, strict=True):
                at = column + step
                bind = self._binds[at] if at < len(self._binds) else varbind(oid, tlv(END_OF_MIB, b""))
                size += len(bind)
                if binds and size > MAX_ANSWER_BYTES:
                    return answer(asked, binds)
                binds.append(bind)
        return answer(asked, binds)

    def _after(self, oid: Oid) -> bytes:
        at = bisect_right(self._oids, oid)
        return self._binds[at] if at < len(self._binds) else varbind(oid, tlv(END_OF_MIB, b""))

    def _exactly(self, oid: Oid) -> bytes:
        at = bisect_right(self._oids, oid) - 1
        if at >= 0 and self._oids[at] == oid:
            return self._binds[at]
        return varbind(oid, tlv(0x80, b""))  # noSuchObject


def _dotted(text: str) -> Oid:
    return tuple(map(int, text.strip(".").split(".")))


def _encoded(tag: int, octets: bytes, text: str) -> bytes:
    if tag == OCTETS:
        return tlv(tag, octets)
    if tag == OBJECT:
        return tlv(tag, oid_bytes(_dotted(text)))
    if tag == 64:  # IpAddress
        return tlv(tag, bytes(map(int, text.split("."))))
    return integer(int(text or "0"), tag)


# --- those that misbehave: a request in, datagrams out ------------------------------------------------------

Answers = Callable[[Request], list[bytes]]


def _well(table: Table) -> Answers:
    return lambda asked: [table.answer(asked)]


def silent(_: Request) -> list[bytes]:
    """As one that does not know the community, or is not there."""
    return []


def garbage(asked: Request) -> list[bytes]:
    """Octets of any kind, and answers that are cut short."""
    rng = random.Random(asked.number)
    whole = answer(asked, [varbind(oid, tlv(OCTETS, b"x")) for oid in asked.oids])
    return [rng.randbytes(rng.randrange(1, 300)), whole[: len(whole) // 2], b"", b"\x30\x84\xff\xff\xff\xff"]


def endless(asked: Request) -> list[bytes]:
    """Rows that go on for ever, each after the one before, all below what was asked for."""
    binds = []
    for oid in asked.oids:
        base = oid if len(oid) > 12 else (*oid, 0)
        steps = range(1, max(asked.repetitions, 1) + 1)
        binds += [varbind((*base[:-1], base[-1] + step), tlv(OCTETS, b"again")) for step in steps]
    return [answer(asked, binds)]


def backwards(asked: Request) -> list[bytes]:
    """The same row again and again."""
    return [answer(asked, [varbind((*oid[:11], 1, 0), tlv(OCTETS, b"same")) for oid in asked.oids])]


def refusing(asked: Request) -> list[bytes]:
    return [answer(asked, [varbind(oid, tlv(NULL, b"")) for oid in asked.oids], GENERAL_ERROR)]


def anothers(asked: Request) -> list[bytes]:
    """Answers to questions that the client did not ask."""
    strange = Request(asked.version, asked.community, asked.kind, asked.number + 7, 0, 0, asked.oids)
    return [answer(strange, [varbind((*oid, 1), tlv(OCTETS, b"no")) for oid in asked.oids])]


def empty(asked: Request) -> list[bytes]:
    return [answer(asked, [])]


def flooding(asked: Request) -> list[bytes]:
    """Two hundred datagrams for one."""
    return anothers(asked) * 200


MISBEHAVIOURS: Mapping[str, Answers] = {
    found.__name__: found
    for found in (silent, garbage, endless, backwards, refusing, anothers, empty, flooding)
}


@dataclass
class Responder:
    """Answers at addresses of this machine, one port on all. `asked`: how often each address was."""

    port: int
    community: bytes
    asked: dict[str, int] = field(default_factory=dict)
    strangers: int = 0  # requests with another community
    _switches: dict[str, Answers] = field(default_factory=dict)
    _sockets: dict[str, socket.socket] = field(default_factory=dict)
    _ending: threading.Event = field(default_factory=threading.Event)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def add(self, address: str, switch: Table | Answers) -> None:
        """Before it runs; or for an address that is there, at any time, in place of what answered so far."""
        self._switches[address] = _well(switch) if isinstance(switch, Table) else switch
        if address not in self._sockets:
            found = self._sockets[address] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            found.setblocking(False)
            found.bind((address, self.port))
            self.port = found.getsockname()[1]
            self.asked[address] = 0
            self._selector.register(found, selectors.EVENT_READ, address)

    def run(self) -> None:
        while not self._ending.is_set():
            for key, _ in self._selector.select(0.1):
                self._serve(self._sockets[key.data], key.data)

    def _serve(self, at: socket.socket, address: str) -> None:
        try:
            data, client = at.recvfrom(65_535)
            asked = request(data)
        except (OSError, ValueError, IndexError):
            return
        self.asked[address] += 1
        if asked.community != self.community:
            self.strangers += 1
            return
        for datagram in self._switches[address](asked):
            try:
                at.sendto(datagram, client)
            except OSError:
                return  # the client is gone, or takes no more

    def close(self) -> None:
        self._ending.set()

    def release(self) -> None:
        for one in self._sockets.values():
            one.close()
        self._selector.close()


@contextmanager
def responding(
    switches: Mapping[str, Table | Answers], community: str = "public", port: int = 0
) -> Iterator[Responder]:
    """In a thread of this process, until the end of the block."""
    responder = Responder(port, community.encode())
    for address, switch in switches.items():
        responder.add(address, switch)
    thread = threading.Thread(target=responder.run, daemon=True)
    thread.start()
    try:
        yield responder
    finally:
        responder.close()
        thread.join()
        responder.release()


def main(port: str, *switches: str) -> None:
    responder = Responder(int(port), b"public")
    for switch in switches:
        address, _, what = switch.partition("=")
        answers = MISBEHAVIOURS.get(what)
        responder.add(address, answers or Table.of_snmprec(Path(what).read_text(encoding="utf-8")))
    threading.Thread(target=responder.run, daemon=True).start()
    print(responder.port, flush=True)
    sys.stdin.read()
    responder.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

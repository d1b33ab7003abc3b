"""Rows from what snmpwalk prints, with all the options that people give it, and from recordings."""

import pytest
from hyperscout_formats.snmp.rows import MAX_BYTES, Row, parse
from hyperscout_formats.text.errors import FormatError
from support.examples import slow_after

NAME = (1, 3, 6, 1, 2, 1, 1, 5, 0)
DOTTED = b".1.3.6.1.2.1.1.5.0"
MAC = bytes.fromhex("141877dd6fca")
LONG = bytes(range(0x80, 0x9A))


@pytest.mark.parametrize(
    ("line", "kind", "value"),
    [
        (b' = STRING: "leaf-01"', "string", b"leaf-01"),
        (b" = STRING: leaf-01", "text", b"leaf-01"),  # with a display hint, from a loaded MIB
        (b' = STRING: "a \\"b\\" \\\\c"', "string", b'a "b" \\c'),
        (b' = STRING: "ends in a backslash \\\\"', "string", b"ends in a backslash \\"),
        (b' = ""', "string", b""),
        (b" = STRING: ", "text", b""),
        (b" = Hex-STRING: 14 18 77 DD 6F CA ", "string", MAC),
        (b" = Hex-STRING: 61 62 63   [abc]", "string", b"abc"),  # -OT
        (b" = STRING: 0:4:96:b7:f7:22", "text", b"0:4:96:b7:f7:22"),
        (b" = INTEGER: 4", "integer", 4),
        (b" = INTEGER: -1", "integer", -1),
        (b" = INTEGER: macAddress(4)", "integer", 4),
        (b" = INTEGER: 10 seconds", "integer", 10),  # without -OU
        (b" = Gauge32: 100000", "gauge", 100000),
        (b" = Counter32: 7", "counter", 7),
        (b" = Counter64: 18446744073709551615", "counter64", 2**64 - 1),
        (b" = Timeticks: (65814) 0:10:58.14", "ticks", 65814),
        (b" = Timeticks: 65814", "ticks", 65814),  # -Ot
        (b" = IpAddress: 10.0.0.1", "address", b"\x0a\0\0\1"),
        (b" = Network Address: 0A:00:00:01", "address", b"\x0a\0\0\1"),
        (b" = OID: .1.3.6.1.4.1.9", "oid", (1, 3, 6, 1, 4, 1, 9)),
        (b" = OID: iso.3.6.1", "oid", (1, 3, 6, 1)),
        (b" = BITS: 28 00 bridge(2) router(4) ", "string", b"\x28\0"),
        (b" = Opaque: Float: 1.500000", "opaque", b"Float: 1.500000"),
        (b" = Wrong Type (should be INTEGER): Gauge32: 40000", "gauge", 40000),
        (b' "leaf-01"', "string", b"leaf-01"),  # -Oq
        (b" leaf-01", "text", b"leaf-01"),
        (b" 513", "integer", 513),
        (b' "513"', "string", b"513"),
        (b' "14 18 77 DD 6F CA "', "string", MAC),
        (b" .1.3.6.1.4.1.9", "oid", (1, 3, 6, 1, 4, 1, 9)),
        (b" = leaf-01", "text", b"leaf-01"),  # -OQ
        (b" = up", "text", b"up"),
        (b" = Cisco: a colon is no type", "text", b"Cisco: a colon is no type"),
    ],
)
def test_one_value(line: bytes, kind: str, value: object) -> None:
    for ending in (b"", b"\n", b"\r\n"):
        assert parse(DOTTED + line + ending) == ((Row(NAME, kind, value),), ())


@pytest.mark.parametrize("start", [b".1.3.6", b"1.3.6", b"iso.3.6"])
def test_how_an_oid_begins(start: bytes) -> None:
    assert parse(start + b".1.2.1.1.5.0 = INTEGER: 1")[0] == (Row(NAME, "integer", 1),)


@pytest.mark.parametrize(
    "line",
    [
        b" = No Such Object available on this agent at this OID",
        b" = No Such Instance currently exists at this OID",
        b" = No more variables left in this MIB View (It is past the end of the MIB tree)",
        b" No Such Object available on this agent at this OID",
        b" = NULL",
    ],
)
def test_what_is_not_there(line: bytes) -> None:
    text = DOTTED + line + b"\n.1.3.6.1.2.1.1.6.0 = INTEGER: 1\n"
    assert parse(text) == ((Row((*NAME[:-2], 6, 0), "integer", 1),), ())


NEXT = b".1.3.6.1.2.1.1.6.0 = INTEGER: 1\n"


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        (
            b' = STRING: "Cisco NX-OS\nTAC support: x\r\n\nCopyright"\n',
            b"Cisco NX-OS\nTAC support: x\r\n\nCopyright",
        ),
        (b' = STRING: "it says \\"\nand goes on"\n', b'it says "\nand goes on'),
        (b' = STRING: "\nall below"\n', b"\nall below"),
        (b" = STRING: Cisco NX-OS\nTAC support: x\nCopyright\n", b"Cisco NX-OS\nTAC support: x\nCopyright"),
        (b' "one\ntwo"\n', b"one\ntwo"),
        (b" = one\ntwo\n\n", b"one\ntwo"),
        (b" = Hex-STRING: %s \n%s \n" % (LONG[:16].hex(" ").encode(), LONG[16:].hex(" ").encode()), LONG),
        (
            b" = Hex-STRING: %s  [................]\n%s  [..........]\n"
            % (LONG[:16].hex(" ").encode(), LONG[16:].hex(" ").encode()),
            LONG,
        ),
        (b' "%s \n%s "\n' % (LONG[:16].hex(" ").upper().encode(), LONG[16:].hex(" ").upper().encode()), LONG),
        (
            b" = Hex-STRING: 09 0A 0B 0C   [\t\n\x0b\x0c]\n0A 0D   [\n\r]\n5D 5B   [][]\n",
            b"\t\n\x0b\x0c\n\r][",
        ),
        (b' = STRING: "never closed\n', b"never closed"),
    ],
)
def test_values_of_several_lines(lines: bytes, value: bytes) -> None:
    rows, problems = parse(DOTTED + lines + NEXT)
    assert ([row.value for row in rows], problems) == ([value, 1], ())


@pytest.mark.parametrize(
    "said",
    [
        b"Timeout: No Response from 10.0.0.1",
        b"Error in packet.\nReason: (genError) A general failure occured",
        b"Error: OID not increasing: .1.3.6.1.2.1.1.9",
        b"$ snmpwalk -On -v2c -c public leaf-01 1.0.8802",
        b"snmpwalk: Timeout",
    ],
)
@pytest.mark.parametrize("before", [b' = STRING: "leaf"', b" = STRING: leaf", b" = Hex-STRING: 6C 65 61 66 "])
def test_what_the_tool_says_is_no_part_of_a_value(before: bytes, said: bytes) -> None:
    rows, problems = parse(DOTTED + before + b"\n" + said + b"\n" + NEXT)
    assert [row.value for row in rows] == [b"leaf", 1]
    assert [problem.line for problem in problems] == [2 + i for i in range(len(said.splitlines()))]


def test_a_quote_ends_what_it_began() -> None:
    rows, problems = parse(DOTTED + b' = STRING: "one\ntwo"\nwhatever\n' + NEXT)
    assert ([row.value for row in rows], [p.line for p in problems]) == ([b"one\ntwo", 1], [3])


def test_a_number_ends_with_its_line() -> None:
    rows, problems = parse(DOTTED + b" 513\nwhatever\n" + NEXT)
    assert ([row.value for row in rows], [p.line for p in problems]) == ([513, 1], [2])


def test_a_byte_order_mark() -> None:
    assert parse(b"\xef\xbb\xbf" + NEXT) == parse(NEXT)


def test_other_lines_after_bytes_are_no_part_of_them() -> None:
    rows, problems = parse(DOTTED + b" = Hex-STRING: 6C 65\nwhatever\n" + NEXT)
    assert ([row.value for row in rows], [str(p) for p in problems]) == (
        [b"le", 1],
        ["snmpwalk:2: not a row: 'whatever'"],
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (DOTTED + b" = INTEGER: many", "not a number: 'many'"),
        (DOTTED + b" = Counter64: 99999999999999999999", "not a number: '99999999999999999999'"),
        (DOTTED + b" = IpAddress: 10.0.0.256", "not an IPv4 address: '10.0.0.256'"),
        (DOTTED + b" = Hex-STRING: 6C 6", "not a hexadecimal string: '6C 6'"),
        (b".1.3.4294967296 = INTEGER: 1", "an OID with a part over 4294967295"),
        (b".1.3" + b".1" * 127 + b" = INTEGER: 1", "an OID of more than 128 parts"),
        (b".1.3.1" + b"0" * 5000 + b" = INTEGER: 1", "an OID of more than 128 parts"),
        (DOTTED + b' = STRING: "' + b"x" * 70_000 + b'"', "a string of 70000 bytes"),
    ],
)
def test_what_cannot_be_read_is_passed_over(line: bytes, why: str) -> None:
    rows, problems = parse(NEXT + line + b"\n", "leaf.txt")
    assert (len(rows), [str(problem) for problem in problems]) == (1, [f"leaf.txt:2: {why}"])


@pytest.mark.parametrize(
    ("line", "kind", "value"),
    [
        (b"|2|4", "integer", 4),
        (b"|4|leaf-01", "string", b"leaf-01"),
        (b"|4|a|b ", "string", b"a|b "),
        (b"|4|", "string", b""),
        (b"|4x|141877DD6FCA", "string", MAC),
        (b"|4x|0x141877dd6fca", "string", MAC),
        (b"|4x|", "string", b""),
        (b"|4x|vmnic2", "text", b"vmnic2"),  # a recording that was edited
        (b"|6|1.3.6.1.4.1.9", "oid", (1, 3, 6, 1, 4, 1, 9)),
        (b"|6|.1.3.6", "oid", (1, 3, 6)),
        (b"|64|10.0.0.1", "address", b"\x0a\0\0\1"),
        (b"|64x|0a000001", "address", b"\x0a\0\0\1"),
        (b"|65|7", "counter", 7),
        (b"|66|100000", "gauge", 100000),
        (b"|67|65814", "ticks", 65814),
        (b"|70|18446744073709551615", "counter64", 2**64 - 1),
    ],
)
def test_a_recording(line: bytes, kind: str, value: object) -> None:
    for ending in (b"", b"\n", b"\r\n"):
        text = b"# by hand\n" + DOTTED[1:] + line + ending
        assert parse(text) == ((Row(NAME, kind, value),), ())


@pytest.mark.parametrize(
    ("line", "problems"),
    [
        (b"1.3.6|5|", []),
        (b"1.3.6|129|", []),
        (b"", []),
        (b"1.3.6|2:numeric|initial=1", ["a variable of the unknown type '2:numeric'"]),
        (b"1.3.6|2|x", ["not a number: 'x'"]),
        (b"1.3.6|6|a.b", ["not an OID: 'a.b'"]),
        (b"1.3.6|6|", ["not an OID: ''"]),
        (b"nonsense", ["expected OID|TYPE|VALUE"]),
    ],
)
def test_rows_of_a_recording_that_are_passed_over(line: bytes, problems: list[str]) -> None:
    rows, found = parse(b"1.3.1|2|1\n" + line + b"\n1.3.7|2|1\n")
    assert (len(rows), [problem.reason for problem in found]) == (2, problems)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no row; expected the output of `snmpwalk -On`, or a .snmprec recording"),
        (b"\n\n", "no row; expected"),
        (b"{}", "it begins with '{}'"),
        (b"\x1b[31m\xff\0", "it begins with ' [31m\\ufffd '"),
        (
            b"SNMPv2-MIB::sysName.0 = STRING: leaf\n",
            "names instead of numeric OIDs: walk with `snmpwalk -On`",
        ),
        (b"Timeout: No Response from 10.0.0.1\n", "it begins with 'Timeout: No Response from 10.0.0.1'"),
        (DOTTED + b" = No Such Object available on this agent at this OID\n", "no row; expected"),
    ],
)
def test_what_is_no_walk(data: bytes, says: str) -> None:
    with pytest.raises(FormatError, match=r"^leaf\.txt: ") as error:
        parse(data, "leaf.txt")
    assert says in str(error.value)


def test_a_file_that_is_too_large() -> None:
    with pytest.raises(FormatError, match="at most"):
        parse(bytes(MAX_BYTES + 1))


@pytest.mark.parametrize(
    "hostile",
    [b" ", b" [", b'"', b"\\", b"11 ", b"\n", b'\n"', b".1"],
)
@pytest.mark.parametrize("size", slow_after(1, [100_000, 1_000_000]))
@pytest.mark.parametrize(
    "start", [DOTTED + b" = Hex-STRING: 00 ", DOTTED + b' = "', DOTTED + b" = BITS: ", b"1.3|4|", b""]
)
def test_no_input_takes_long(start: bytes, hostile: bytes, size: int) -> None:
    rows, problems = parse(
        (b"1.3.1|2|1\n" if b"|" in start else NEXT) + start + hostile * (size // len(hostile)) + b"x"
    )
    assert 1 <= len(rows) <= 2
    assert all(len(str(problem)) < 200 for problem in problems)

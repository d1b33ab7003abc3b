"""A switch from its rows: what vendors write in their ways comes out the same, what is a guess says so."""

import random
from collections.abc import Mapping
from typing import Any

import pytest
from hyperscout_formats.facts.facts import LldpNeighbour, PortCounters, SwitchPort, SwitchTable
from hyperscout_formats.snmp.rows import COUNTER64, INTEGER, STRING, TEXT, Row
from hyperscout_formats.snmp.switch import (
    MAX_NEIGHBOURS,
    MAX_PORTS,
    MAX_PROBLEMS,
    read,
    wanted_subtrees,
)

LOCAL = "1.0.8802.1.1.2.1.3"
REMOTE = "1.0.8802.1.1.2.1.4.1.1"
ADDRESS = "1.0.8802.1.1.2.1.4.2.1.3"
IF = "1.3.6.1.2.1.2.2.1"
IFX = "1.3.6.1.2.1.31.1.1.1"
FCS = "1.3.6.1.2.1.10.7.2.1.3"

Variables = Mapping[str, bytes | str | int | None]

# One switch with one port, number 7 and ifIndex 107, that hears one neighbour.
IDENTITY: Variables = {
    f"{LOCAL}.1.0": 4,
    f"{LOCAL}.2.0": bytes.fromhex("020000000001"),
    f"{LOCAL}.3.0": b"leaf-01",
    f"{LOCAL}.8.1.5.1.4.10.0.0.1": 1,
    "1.3.6.1.2.1.1.5.0": b"leaf-01.example",
}
PORT: Variables = {f"{LOCAL}.7.1.2.7": 5, f"{LOCAL}.7.1.3.7": b"swp7", f"{LOCAL}.7.1.4.7": b"to the spine"}
INTERFACE: Variables = {
    f"{IF}.2.107": b"swp7",
    f"{IF}.6.107": bytes.fromhex("020000000107"),
    f"{IF}.8.107": 1,
    f"{IF}.13.107": 1,
    f"{IF}.14.107": 2,
    f"{IF}.19.107": 3,
    f"{IF}.20.107": 4,
    f"{IFX}.1.107": b"swp7",
    f"{IFX}.15.107": 100_000,
    f"{IFX}.18.107": b"",
    f"{FCS}.107": 5,
}
HEARD: Variables = {
    f"{REMOTE}.4.0.7.1": 4,
    f"{REMOTE}.5.0.7.1": bytes.fromhex("020000000009"),
    f"{REMOTE}.6.0.7.1": 5,
    f"{REMOTE}.7.0.7.1": b"Ethernet1/1",
    f"{REMOTE}.8.0.7.1": b"to leaf-01",
    f"{REMOTE}.9.0.7.1": b"spine-01",
    f"{REMOTE}.12.0.7.1": b"\x28\x00",
    f"{ADDRESS}.0.7.1.1.4.10.0.0.9": 2,
}
ALL: Variables = {**IDENTITY, **PORT, **INTERFACE, **HEARD}


def rows(variables: Variables) -> list[Row]:
    """Text (str) is a string of which only what was shown is known; None is no variable."""
    found = []
    for oid, value in variables.items():
        parts = tuple(map(int, oid.split(".")))
        if isinstance(value, str):
            found.append(Row(parts, TEXT, value.encode()))
        elif value is not None:
            found.append(Row(parts, STRING if isinstance(value, bytes) else INTEGER, value))
    return found


def seen(change: Variables = {}, base: Variables = ALL, **more: Any) -> SwitchTable:  # noqa: B006
    return read(rows({**base, **change}), "a-file", **more)


def the_port(table: SwitchTable) -> SwitchPort:
    (port,) = table.ports
    return port


def the_neighbour(table: SwitchTable) -> LldpNeighbour:
    (neighbour,) = the_port(table).neighbours
    return neighbour


def without(*prefixes: str) -> dict[str, None]:
    return {oid: None for oid in ALL if oid.startswith(prefixes)}


def test_a_whole_switch() -> None:
    assert seen() == SwitchTable(
        (
            SwitchPort(
                "swp7",
                "mac",
                "02:00:00:00:00:01",
                (
                    LldpNeighbour(
                        "mac",
                        "02:00:00:00:00:09",
                        "ifname",
                        "Ethernet1/1",
                        120,
                        "to leaf-01",
                        "spine-01",
                        "",
                        ("10.0.0.9",),
                        ("Bridge", "Router"),
                    ),
                ),
                "leaf-01",
                "ifname",
                "swp7",
                "to the spine",
                "02:00:00:00:01:07",
                speed_mbps=100_000,
                counters=PortCounters(rx_errors=2, rx_crc_errors=5, rx_dropped=1, tx_errors=4, tx_dropped=3),
            ),
        ),
        ("10.0.0.1",),
    )


def test_order_does_not_matter() -> None:
    variables = dict(ALL)
    for n in range(8, 20):
        variables |= {f"{LOCAL}.7.1.3.{n}": f"swp{n}".encode(), f"{IFX}.1.{n + 100}": f"swp{n}".encode()}
        for mark in (3, 1, 2):
            variables[f"{REMOTE}.5.{mark}.{n}.{mark}"] = b"\2\0\0\0\0" + bytes((n,))
            variables[f"{REMOTE}.9.{mark}.{n}.{mark}"] = b"host %d" % mark
            variables[f"{ADDRESS}.{mark}.{n}.{mark}.1.4.10.0.{mark}.{n}"] = 1
    given = rows(variables)
    table = read(given, "a-file")
    assert len(table.ports) == 13
    for seed in range(5):
        random.Random(seed).shuffle(given)
        assert read(given, "a-file") == table


def test_only_what_is_wanted_is_needed() -> None:
    def wanted(row: Row) -> bool:
        return any(row.oid[: len(prefix)] == prefix for prefix in wanted_subtrees())

    assert read(filter(wanted, rows(ALL)), "a-file") == seen()
    assert [
        prefix for prefix in wanted_subtrees() if not any(r.oid[: len(prefix)] == prefix for r in rows(ALL))
    ] == []


MAC = "02:00:00:00:00:09"


@pytest.mark.parametrize(
    ("subtype", "value", "word", "text"),
    [
        (4, bytes.fromhex("020000000009"), "mac", MAC),
        (4, b"PkK123", "mac", "50:6b:4b:31:32:33"),  # letters may be a MAC address
        (4, b"02 00 00 00 00 09", "mac", MAC),
        (4, "2:0:0:0:0:9", "mac", MAC),
        (4, b"02-00-00-00-00-09", "mac", MAC),
        (4, b"0200.0000.0009", "mac", MAC),
        (4, b"020000000009", "mac", MAC),
        ("macAddress", bytes.fromhex("020000000009"), "mac", MAC),
        (5, b"\1\x0a\0\0\x09", "ip", "10.0.0.9"),
        (5, b"\x0a\0\0\x09", "ip", "10.0.0.9"),
        (5, b"10.0.0.9", "ip", "10.0.0.9"),
        (5, b"\2" + bytes(15) + b"\1", "ip", "::1"),
        (5, b"\7abcd", "ip", "07 61 62 63 64"),
        (6, b"Ethernet1/1", "ifname", "Ethernet1/1"),
        (2, b"uplink", "ifalias", "uplink"),
        (7, b"spine-01", "local", "spine-01"),
        (7, b"\xff\xfe\0x", "local", "\ufffd\ufffd"),  # as lldpctl prints it
        (7, b"\0\1", "local", "00 01"),
        (1, b"\1\2", "unhandled", "01 02"),
        (3, b"ab", "unhandled", "61 62"),
        (7, 513, "local", "513"),
        (1, "Slot 3", "unhandled", "Slot 3"),  # whatever its bytes were
        (7, b"x" * 300, "local", "x" * 255),
    ],
)
def test_chassis_ids(subtype: int | str, value: bytes | str | int, word: str, text: str) -> None:
    table = seen({f"{REMOTE}.4.0.7.1": subtype, f"{REMOTE}.5.0.7.1": value})
    neighbour = the_neighbour(table)
    assert (neighbour.chassis_id_subtype, neighbour.chassis_id) == (word, text)
    assert the_port(table).doubt == ""
    own = seen({f"{LOCAL}.1.0": subtype, f"{LOCAL}.2.0": value})
    assert (the_port(own).chassis_id_subtype, the_port(own).chassis_id, own.problems) == (word, text, ())


@pytest.mark.parametrize(
    ("subtype", "value", "word", "text"),
    [
        (5, b"swp1", "ifname", "swp1"),
        (1, b"uplink", "ifalias", "uplink"),
        (3, bytes.fromhex("020000000009"), "mac", MAC),
        (4, b"\1\x0a\0\0\x09", "ip", "10.0.0.9"),
        (7, b"513", "local", "513"),
        (7, 513, "local", "513"),  # -Oq
        (2, b"\1", "unhandled", "01"),
        (6, b"\1", "unhandled", "01"),
        ("interfaceName", b"swp1", "ifname", "swp1"),
        ("macAddress", "2:0:0:0:0:9", "mac", MAC),
    ],
)
def test_port_ids(subtype: int | str, value: bytes | str | int, word: str, text: str) -> None:
    table = seen({f"{REMOTE}.6.0.7.1": subtype, f"{REMOTE}.7.0.7.1": value})
    neighbour = the_neighbour(table)
    assert (neighbour.port_id_subtype, neighbour.port_id, the_port(table).doubt) == (word, text, "")


ODD = "has a neighbour with a chassis id that"


@pytest.mark.parametrize(
    ("change", "chassis", "doubt"),
    [
        ({f"{REMOTE}.4.0.7.1": None}, ("mac", MAC), f"{ODD} has an unknown subtype"),
        ({f"{REMOTE}.4.0.7.1": 9}, ("mac", MAC), f"{ODD} has an unknown subtype"),
        (
            {f"{REMOTE}.4.0.7.1": None, f"{REMOTE}.5.0.7.1": b"Eth6/3"},
            ("local", "Eth6/3"),
            f"{ODD} has an unknown subtype",
        ),
        (
            {f"{REMOTE}.5.0.7.1": "vmnic2"},
            ("mac", "vmnic2"),
            f"{ODD} is announced as a MAC address but is not one",
        ),
        (
            {f"{REMOTE}.5.0.7.1": None},
            ("", "spine-01@10.0.0.9"),
            "has a neighbour without a chassis id, identified by its management address",
        ),
        (
            {f"{REMOTE}.5.0.7.1": b"", f"{REMOTE}.9.0.7.1": b"<private>"},
            ("", "10.0.0.9"),
            "has a neighbour without a chassis id, identified by its management address",
        ),
        (
            {
                f"{REMOTE}.4.0.7.1": 7,
                f"{REMOTE}.5.0.7.1": b"<private>",
                f"{ADDRESS}.0.7.1.1.4.10.0.0.9": None,
            },
            ("", ""),
            "has a neighbour without a chassis id",
        ),
        (
            {f"{REMOTE}.5.0.7.1": bytes(6)},
            ("", "spine-01@10.0.0.9"),
            "has a neighbour without a chassis id, identified by its management address",
        ),
    ],
)
def test_a_neighbour_of_doubtful_identity_is_a_neighbour(
    change: Variables, chassis: tuple[str, str], doubt: str
) -> None:
    table = seen(change)
    neighbour = the_neighbour(table)
    assert (neighbour.chassis_id_subtype, neighbour.chassis_id) == chassis
    assert the_port(table).doubt == doubt


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"spine-01", "spine-01"),
        (b"<private>", ""),
        (b"Not Advertised", ""),
        (b"spine\x1b[31m\0rest", "spine [31m"),
        (513, "513"),
        (b"x" * 300, "x" * 255),
    ],
)
def test_names(name: bytes | int, shown: str) -> None:
    assert the_neighbour(seen({f"{REMOTE}.9.0.7.1": name})).system_name == shown


@pytest.mark.parametrize("nothing", [None, b"", b"<private>"])
def test_a_neighbour_without_a_port_id(nothing: bytes | None) -> None:
    table = seen({f"{REMOTE}.7.0.7.1": nothing})
    neighbour = the_neighbour(table)
    assert (neighbour.port_id_subtype, neighbour.port_id) == ("ifname", "unknown at swp7")
    assert the_port(table).doubt == "has a neighbour without a port id"


SECOND = {oid.replace(".0.7.1", ".0.7.2"): value for oid, value in ALL.items() if oid.startswith(REMOTE)}


def test_rows_that_come_or_go_during_a_walk_are_left_out() -> None:
    second = SECOND | {f"{REMOTE}.5.0.7.2": bytes.fromhex("020000000099")}
    columns = sorted(int(oid.removeprefix(f"{REMOTE}.").split(".")[0]) for oid in second)
    chassis, port = columns.index(5), columns.index(7)

    def of(wanted: list[int]) -> list[str]:
        rows = {
            oid: x for oid, x in second.items() if int(oid.removeprefix(f"{REMOTE}.").split(".")[0]) in wanted
        }
        table = seen(rows)
        assert any("during the walk" in x for x in table.problems) == (len(the_port(table).neighbours) == 1)
        return [x.port_id for x in the_port(table).neighbours]

    assert len(of(columns)) == 2
    for first in range(1, len(columns)):
        assert len(of(columns[:first])) == (2 if first > port else 1), columns[:first]
        assert len(of(columns[first:])) == (2 if first <= chassis else 1), columns[first:]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"\x28\x00", ("Bridge", "Router")),
        (b"\x28", ("Bridge", "Router")),
        (b"\x28\x00\x00\x00", ("Bridge", "Router")),
        (b"28 00 2 4", ("Bridge", "Router")),
        (b"28 2 4", ("Bridge", "Router")),
        ("28 bridge(2) router(4) ", ("Bridge", "Router")),
        (b"28 00 00", ("Bridge", "Router")),
        (b"28 00 00 00 2 4", ("Bridge", "Router")),
        (b"36 38 20 31 20 32 20 34 2 3 5 6 10 11 12", ("Bridge", "Repeater", "Router")),  # "68 1 2 4"
        (b"30 30 2 3 10 11", ()),  # "00"
        (b"01 7", ("Station",)),
        (b"\xff", ("Bridge", "Docsis", "Other", "Repeater", "Router", "Station", "Tel", "Wlan")),
        (b"00 00", ()),
        (b"", ()),
    ],
)
def test_capabilities(value: bytes | str, words: tuple[str, ...]) -> None:
    assert the_neighbour(seen({f"{REMOTE}.12.0.7.1": value})).capabilities == words


def test_capabilities_that_are_enabled_count() -> None:
    both = {f"{REMOTE}.11.0.7.1": b"\x28", f"{REMOTE}.12.0.7.1": b"\x08"}
    assert the_neighbour(seen(both)).capabilities == ("Router",)
    assert the_neighbour(seen(both | {f"{REMOTE}.12.0.7.1": None})).capabilities == ("Bridge", "Router")


V6 = "253.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1"


@pytest.mark.parametrize(
    ("indexes", "addresses"),
    [
        (["0.7.1.1.4.10.0.0.9"], ("10.0.0.9",)),
        (["0.7.1.1.10.0.0.9"], ("10.0.0.9",)),  # without the length
        (["0.7.1.1.4.0.0.9"], ("4.0.0.9",)),
        ([f"0.7.1.2.16.{V6}"], ("fd00::1",)),
        ([f"0.7.1.2.{V6}"], ("fd00::1",)),
        (
            [f"527540.7.1.2.16.{V6}", "527550.7.1.1.4.10.0.0.9", "527560.7.1.1.4.10.0.0.9"],
            ("10.0.0.9", "fd00::1"),
        ),
        (["0.7.1.1.4.10.0.0.10", "0.7.1.1.4.10.0.0.9"], ("10.0.0.9", "10.0.0.10")),
        (["0.7.1.6.6.2.0.0.0.0.9"], ()),  # a MAC address
        (["0.7.1.6.2.0.0.0.0.9"], ()),
        (["0.7.1.1.4.0.0.0.0"], ()),
        (["0.7.1.1.4.127.0.0.1"], ()),
        (["0.7.1.1.4.224.0.0.1"], ()),
        (["0.7.1.1.4.10.0.0.256"], ()),
        (["0.7.1.1.4.10.0.0"], ("4.10.0.0",)),
        (["0.7.1.1.10.0.0"], ()),
        (["0.7.1.1.3.10.0.0.9"], ()),
        (["0.7.1.1"], ()),
        (["0.7"], ()),
        (["0.8.1.1.4.10.0.0.9", "0.7.2.1.4.10.0.0.9"], ()),  # of others
    ],
)
def test_management_addresses(indexes: list[str], addresses: tuple[str, ...]) -> None:
    none = {f"{ADDRESS}.0.7.1.1.4.10.0.0.9": None}
    table = seen(none | {f"{ADDRESS}.{index}": 2 for index in indexes})
    assert the_neighbour(table).management_addresses == addresses


PORT_7 = without(f"{LOCAL}.7", f"{IF}.2.", f"{IFX}.1.")
TAKEN = "is assumed to be interface xe-0/0/7, which has the same number"


@pytest.mark.parametrize(
    ("change", "found", "doubt"),
    [
        ({f"{LOCAL}.7.1.3.7": b"xe", f"{IFX}.1.107": b"xe"}, "xe", ""),
        ({f"{LOCAL}.7.1.3.7": b"xe", f"{IF}.2.107": b"xe", f"{IFX}.1.107": b"x"}, "x", ""),
        ({f"{LOCAL}.7.1.3.7": b"xe", f"{LOCAL}.7.1.4.7": b"xe0", f"{IFX}.1.107": b"xe0"}, "xe0", ""),
        ({f"{LOCAL}.7.1.3.7": b"Port 3", f"{IFX}.18.107": b"Port 3", f"{IFX}.1.107": b"xe"}, "xe", ""),
        (
            {f"{LOCAL}.7.1.4.7": b"to x", f"{IFX}.18.107": b"to x", f"{IFX}.1.107": b"xe"},
            "xe",
            "reports no port id of its own",
        ),
        (
            {
                f"{LOCAL}.7.1.2.7": 3,
                f"{LOCAL}.7.1.3.7": bytes.fromhex("020000000107"),
                f"{IFX}.1.107": b"xe",
                f"{IFX}.1.7": b"no",
            },
            "xe",
            "",
        ),
        ({f"{LOCAL}.7.1.3.7": b"Ethernet1/7", f"{IFX}.1.107": b"ethernet 1/7"}, "ethernet 1/7", ""),
        ({f"{LOCAL}.7.1.3.7": b"107", f"{IFX}.1.107": b"xe", f"{IFX}.1.7": b"no"}, "xe", ""),  # by ifIndex
        ({f"{LOCAL}.7.1.3.7": b"7", f"{IFX}.1.7": b"xe-0/0/7"}, "xe-0/0/7", TAKEN),
        ({f"{LOCAL}.7.1.3.7": b"a", f"{IFX}.1.7": b"xe-0/0/7"}, "xe-0/0/7", TAKEN),
        ({f"{LOCAL}.7.1.3.7": b"a", f"{IFX}.1.9": b"b"}, "a", "matches no interface"),
        ({f"{LOCAL}.7.1.3.7": b"a"}, "a", ""),  # there are none: said once, of the switch
    ],
)
def test_which_interface_a_port_is(change: Variables, found: str, doubt: str) -> None:
    port = the_port(seen({**PORT_7, f"{LOCAL}.7.1.2.7": 7, **change}))
    assert (port.interface, port.doubt) == (found, doubt)
    assert (port.speed_mbps == 100_000) == (f"{IFX}.1.107" in change)


@pytest.mark.parametrize(
    ("change", "speed_mbps", "doubt"),
    [
        ({}, 100_000, "is one of 2 interfaces with the name swp7"),  # the one that is up
        ({f"{IF}.8.5": 1}, 40_000, "is one of 2 interfaces with the name swp7"),
        ({f"{IFX}.1.7": b"swp7", f"{IFX}.15.7": 25_000}, 25_000, ""),  # the one with its number
        ({f"{IFX}.1.7": b"SWP 7"}, 100_000, "is one of 2 interfaces with the name swp7"),
    ],
)
def test_two_interfaces_of_one_name(change: Variables, speed_mbps: int, doubt: str) -> None:
    twin = {f"{IFX}.1.5": b"swp7", f"{IFX}.15.5": 40_000, f"{IF}.8.5": 2}
    port = the_port(seen(twin | change))
    assert (port.speed_mbps, port.doubt) == (speed_mbps, doubt)


@pytest.mark.parametrize(
    ("change", "port_id", "doubt"),
    [
        ({}, "xe-0/0/7", f"reports no port id of its own; {TAKEN}"),
        ({f"{IFX}.1.7": None}, "port 7", "reports no port id of its own; matches no interface"),
    ],
)
def test_a_port_that_is_in_the_table_of_neighbours_alone(change: Variables, port_id: str, doubt: str) -> None:
    table = seen({**PORT_7, f"{IFX}.1.7": b"xe-0/0/7", f"{IFX}.1.9": b"b", **change})
    port = the_port(table)
    assert (port.interface, port.port_id, port.doubt, len(port.neighbours)) == (port_id, port_id, doubt, 1)


def test_ports_that_announce_the_same_are_told_apart() -> None:
    table = seen(
        {
            f"{LOCAL}.7.1.2.7": 3,
            f"{LOCAL}.7.1.3.7": bytes.fromhex("020000000001"),
            f"{LOCAL}.7.1.4.7": b"swp7",
            f"{LOCAL}.7.1.2.8": 3,
            f"{LOCAL}.7.1.3.8": bytes.fromhex("020000000001"),
            f"{LOCAL}.7.1.4.8": b"swp8",
            f"{IFX}.1.108": b"swp8",
        }
    )
    assert [(port.port_id, port.doubt) for port in table.ports] == [
        (f"02:00:00:00:00:01 ({name})", "is one of 2 ports that are announced as 02:00:00:00:00:01")
        for name in ("swp7", "swp8")
    ]


def test_ports_that_announce_the_same_and_are_called_the_same() -> None:
    same = {f"{LOCAL}.7.1.3.{n}": b"x" for n in (7, 8)} | {f"{LOCAL}.7.1.4.{n}": b"swp7" for n in (7, 8)}
    assert [port.port_id for port in seen(same).ports] == ["x (swp7)", "x (swp7) number 8"]


def test_an_address_of_zeros_is_left_out() -> None:
    assert the_port(seen({f"{IF}.6.107": bytes(6)})).mac == ""
    assert the_port(seen({f"{IF}.6.107": b""})).mac == ""


def test_ports_without_an_id_of_their_own_are_told_apart_by_number() -> None:
    """All three are the interface of one name."""
    table = seen(
        {
            f"{LOCAL}.7.1.3.7": None,
            f"{LOCAL}.7.1.4.7": b"swp7",
            f"{LOCAL}.7.1.3.8": b"swp7",
            f"{LOCAL}.7.1.3.9": b"",
            f"{LOCAL}.7.1.4.9": b"swp7",
        }
    )
    assert [port.port_id for port in table.ports] == ["swp7", "swp7 number 7", "swp7 number 9"]
    assert [bool(port.doubt) for port in table.ports] == [False, True, True]


@pytest.mark.parametrize(
    ("change", "mbps"),
    [
        ({}, 100_000),
        ({f"{IFX}.15.107": None}, 0),
        ({f"{IFX}.15.107": None, f"{IF}.5.107": 1_000_000_000}, 1000),
        ({f"{IFX}.15.107": 0, f"{IF}.5.107": 4294967295}, 0),
        ({f"{IFX}.15.107": 4294967295}, 0),
        ({f"{IFX}.15.107": -1}, 0),
        ({f"{IFX}.15.107": b"fast"}, 0),
    ],
)
def test_speeds(change: Variables, mbps: int) -> None:
    assert the_port(seen(change)).speed_mbps == mbps


@pytest.mark.parametrize(
    ("status", "up"), [(1, True), (2, False), (7, False), ("up", True), ("down", False), (None, True)]
)
def test_whether_a_port_is_up(status: int | str | None, up: bool) -> None:
    port = the_port(seen({f"{IF}.8.107": status}))
    assert port.carrier is up
    assert port.doubt == ("" if up else "is down, but its neighbour has not expired yet")


def test_counters_are_bounded() -> None:
    given = [
        *rows(ALL),
        *rows({f"{IF}.14.107": -5}),
        Row((1, 3, 6, 1, 2, 1, 2, 2, 1, 20, 107), COUNTER64, 2**70),
    ]
    counters = the_port(read(given, "a-file")).counters
    assert (counters.rx_errors, counters.tx_errors) == (0, 2**64 - 1)


NO_CHASSIS = f"{LOCAL}.2.0"


@pytest.mark.parametrize(
    ("change", "address", "chassis"),
    [
        ({NO_CHASSIS: None}, "", "leaf-01@10.0.0.1"),
        ({NO_CHASSIS: bytes(6)}, "192.0.2.1", "leaf-01@192.0.2.1"),
        ({NO_CHASSIS: b""}, "192.0.2.1", "leaf-01@192.0.2.1"),
        ({NO_CHASSIS: None, f"{LOCAL}.3.0": None}, "", "leaf-01.example@10.0.0.1"),
        ({NO_CHASSIS: None, f"{LOCAL}.8.1.5.1.4.10.0.0.1": None}, "", "a-file"),
        ({NO_CHASSIS: None, f"{LOCAL}.3.0": b"<private>", "1.3.6.1.2.1.1.5.0": b"<private>"}, "", "a-file"),
        ({NO_CHASSIS: None, f"{LOCAL}.3.0": None, "1.3.6.1.2.1.1.5.0": None}, "192.0.2.1", "a-file"),
    ],
)
def test_a_switch_that_does_not_tell_its_identity(change: Variables, address: str, chassis: str) -> None:
    table = seen(change, address=address)
    port = the_port(table)
    assert (port.chassis_id, port.chassis_id_subtype) == (chassis, "")
    assert len(table.problems) == 1
    assert chassis in table.problems[0]


def test_addresses_of_the_switch() -> None:
    assert seen(address="192.0.2.1").addresses == ("192.0.2.1", "10.0.0.1")
    assert seen(address="10.0.0.1").addresses == ("10.0.0.1",)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (without(LOCAL + ".7", REMOTE), "no LLDP-MIB (1.0.8802.1.1.2)"),
        (without(IF, IFX), "no IF-MIB"),
        ({f"{REMOTE}.5.7.1": b"x", f"{REMOTE}.5.0.7.1.1": b"x"}, "2 rows of lldpRemTable have no index"),
        ({f"{LOCAL}.1.0": 9}, "its chassis id has an unknown subtype: 02:00:00:00:00:01"),
    ],
)
def test_what_is_odd_about_the_whole(change: Variables, says: str) -> None:
    (problem,) = seen(change).problems
    assert says in problem


def test_nothing_at_all() -> None:
    table = read([], "a-file")
    assert (table.ports, table.addresses, len(table.problems)) == ((), (), 2)


class TestSeveralNeighbours:
    """On one port: each (chassis, port) is one, however often it stands there."""

    def heard(self, *entries: tuple[str, int, bytes, int, bytes, bytes], **more: Any) -> SwitchPort:
        variables: dict[str, bytes | str | int | None] = {**without(REMOTE), **without(ADDRESS)}
        for index, chassis_kind, chassis, port_kind, port, name in entries:
            for column, value in ((4, chassis_kind), (5, chassis), (6, port_kind), (7, port), (9, name)):
                variables[f"{REMOTE}.{column}.{index}"] = value
        return the_port(seen(variables, **more))

    def test_each_is_kept(self) -> None:
        port = self.heard(
            ("0.7.1", 7, b"b", 5, b"1", b""),
            ("0.7.2", 7, b"a", 5, b"1", b""),
            ("0.7.3", 7, b"a", 5, b"2", b""),
        )
        assert [(n.chassis_id, n.port_id) for n in port.neighbours] == [("a", "1"), ("a", "2"), ("b", "1")]
        assert port.doubt == ""

    def test_the_same_twice_is_one_and_the_newest_counts(self) -> None:
        port = self.heard(
            ("900.7.2", 7, b"a", 5, b"1", b"new"),
            ("20.7.9", 7, b"a", 5, b"1", b"old"),
            ("900.7.1", 7, b"a", 5, b"1", b"older"),
        )
        assert [(n.chassis_id, n.port_id, n.system_name) for n in port.neighbours] == [("a", "1", "new")]
        assert port.doubt == ""

    def test_of_two_kinds(self) -> None:
        port = self.heard(("1.7.1", 6, b"vmnic2", 5, b"1", b""), ("2.7.2", 7, b"vmnic2", 5, b"1", b""))
        assert [(n.chassis_id_subtype, n.chassis_id) for n in port.neighbours] == [("local", "vmnic2")]
        assert port.doubt == "has a neighbour that is listed with 2 kinds of id"

    def test_doubts_are_told_once(self) -> None:
        port = self.heard(*((f"0.7.{n}", 9, b"n%d" % n, 5, b"", b"") for n in range(5)))
        assert len(port.neighbours) == 5
        assert port.doubt == f"{ODD} has an unknown subtype; has a neighbour without a port id"

    @pytest.mark.slow
    def test_a_storm(self) -> None:
        storm = [(f"0.7.{n}", 7, b"%05d" % n, 5, b"1", b"") for n in range(10_000)]
        assert len(self.heard(*storm).neighbours) == 10_000
        port = self.heard(*storm, neighbours_per_port=64)
        assert [n.chassis_id for n in port.neighbours] == [f"{n:05d}" for n in range(64)]
        assert port.doubt == "has 10000 neighbours, of which 64 are kept"


@pytest.mark.slow
def test_a_storm_on_all_ports_is_bounded() -> None:
    variables: dict[str, bytes | str | int | None] = {}
    for n in range(MAX_PORTS + 10):
        variables[f"{LOCAL}.7.1.3.{n}"] = b"swp%d" % n
        for remote in range(6):
            variables[f"{REMOTE}.5.0.{n}.{remote}"] = b"\2\0\0\0%c%c" % (n % 256, remote)
    table = read(rows({**IDENTITY, **variables}), "a-file")
    assert len(table.ports) == MAX_PORTS
    assert sum(len(port.neighbours) for port in table.ports) == MAX_NEIGHBOURS
    assert len(table.problems) == MAX_PROBLEMS
    assert f"{MAX_PORTS + 10} ports: only {MAX_PORTS} are kept, ports with neighbours first" in table.problems


def test_of_too_many_ports_those_are_kept_that_hear() -> None:
    quiet = {f"{LOCAL}.7.1.3.{n}": b"p%05d" % n for n in range(MAX_PORTS + 10)}
    ports = read(rows({**IDENTITY, **quiet, f"{REMOTE}.5.0.{MAX_PORTS + 9}.1": b"a"}), "a-file").ports
    assert len(ports) == MAX_PORTS
    assert [port.interface for port in ports if port.neighbours] == [f"p{MAX_PORTS + 9:05d}"]

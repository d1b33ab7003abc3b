"""`lldpctl -f json0`, `-f json`, and what is neither. Texts as lldpd 1.0.16 printed them."""

import json
from typing import Any

import pytest
from hyperscout_formats.facts.facts import LldpNeighbour, LldpPort
from hyperscout_formats.lldp import lldpctl
from hyperscout_formats.lldp.lldpctl import parse
from hyperscout_formats.text.errors import FormatError

LEAF = LldpNeighbour(
    chassis_id_subtype="mac",
    chassis_id="02:00:00:00:00:09",
    port_id_subtype="ifname",
    port_id="swp7",
    ttl_s=120,
    port_description="Port seven",
    system_name="leaf-02",
    system_description="descr",
    management_addresses=("10.0.0.1", "::1"),
    capabilities=("Bridge", "Router"),
)
OTHER = LldpNeighbour("local", "other", "local", "9", 100)


def leaf0(**changes: Any) -> dict[str, Any]:
    """What json0 says of `LEAF`."""
    return {
        "name": "eth0",
        "via": "LLDP",
        "rid": "1",
        "age": "0 day, 00:00:01",
        "chassis": [
            {
                "id": [{"type": "mac", "value": "02:00:00:00:00:09"}],
                "name": [{"value": "leaf-02"}],
                "descr": [{"value": "descr"}],
                "mgmt-ip": [{"value": "10.0.0.1"}, {"value": "::1"}],
                "mgmt-iface": [{"value": "3"}, {"value": "3"}],
                "capability": [
                    {"type": "Router", "enabled": True},
                    {"type": "Bridge", "enabled": True},
                    {"type": "Station", "enabled": False},
                ],
            }
        ],
        "port": [
            {
                "id": [{"type": "ifname", "value": "swp7"}],
                "descr": [{"value": "Port seven"}],
                "ttl": [{"value": "120"}],
            }
        ],
    } | changes


def other0(name: str = "eth0", **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "via": "LLDP",
        "chassis": [{"id": [{"type": "local", "value": "other"}]}],
        "port": [{"id": [{"type": "local", "value": "9"}], "ttl": [{"value": "100"}]}],
    } | changes


def document0(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"lldp": [{"interface": list(entries)}]}).encode()


LEAF1 = {
    "via": "LLDP",
    "chassis": {
        "leaf-02": {
            "id": {"type": "mac", "value": "02:00:00:00:00:09"},
            "descr": "descr",
            "mgmt-ip": ["10.0.0.1", "::1"],
            "capability": [{"type": "Bridge", "enabled": True}, {"type": "Router", "enabled": True}],
        }
    },
    "port": {"id": {"type": "ifname", "value": "swp7"}, "descr": "Port seven", "ttl": "120"},
}
OTHER1 = {
    "via": "LLDP",
    "chassis": {"id": {"type": "local", "value": "other"}},
    "port": {"id": {"type": "local", "value": "9"}, "ttl": "100"},
}


@pytest.mark.parametrize(
    ("data", "ports"),
    [
        (document0(leaf0()), [LldpPort("eth0", (LEAF,))]),
        (document0(leaf0(), other0()), [LldpPort("eth0", (LEAF, OTHER))]),
        (document0(leaf0(), other0("eth1")), [LldpPort("eth0", (LEAF,)), LldpPort("eth1", (OTHER,))]),
        (document0(other0(), leaf0(), other0()), [LldpPort("eth0", (OTHER, LEAF))]),  # given twice, kept once
        (document0(leaf0()).replace(b"\n", b"\r\n"), [LldpPort("eth0", (LEAF,))]),
        (document0(leaf0(via="CDPv2")), [LldpPort("eth0", (LEAF,))]),
        (document0(other0(via="CDPv1", port=[])), []),
        (b'{"lldp": [{}]}', []),
        (b'{"lldp": {}}', []),
        (b'{"lldp": []}', []),
        # plain json, in its three shapes
        (json.dumps({"lldp": {"interface": {"eth0": LEAF1}}}).encode(), [LldpPort("eth0", (LEAF,))]),
        (
            json.dumps(
                {"lldp": {"interface": [{"eth0": LEAF1}, {"eth0": OTHER1}, {"eth1": OTHER1}]}}
            ).encode(),
            [LldpPort("eth0", (LEAF, OTHER)), LldpPort("eth1", (OTHER,))],
        ),
        (
            json.dumps({"lldp": {"interface": {"eth0": LEAF1, "eth1": OTHER1}}}).encode(),
            [LldpPort("eth0", (LEAF,)), LldpPort("eth1", (OTHER,))],
        ),
    ],
)
def test_ports(data: bytes, ports: list[LldpPort]) -> None:
    assert parse(data) == (tuple(ports), ())


@pytest.mark.parametrize("name", ["id", "chassis", ""])
def test_a_system_with_the_name_of_a_key(name: str) -> None:
    entry = {**OTHER1, "chassis": {name: OTHER1["chassis"]}}
    ((port,), problems) = parse(json.dumps({"lldp": {"interface": {"eth0": entry}}}).encode())
    assert port.neighbours[0].system_name == name
    assert port.neighbours[0].chassis_id == "other"
    assert problems == ()


@pytest.mark.parametrize(
    ("chassis", "port", "field", "value"),
    [
        ({"id": [{"type": "mac", "value": "02:AB:00:00:00:09"}]}, {}, "chassis_id", "02:ab:00:00:00:09"),
        ({"name": [{"value": "a\u001b[0m"}]}, {}, "system_name", "a [0m"),
        ({"name": [{"value": "\ud800"}]}, {}, "system_name", " "),  # half a surrogate pair
        ({"name": [{}]}, {}, "system_name", ""),
        ({"name": [{"value": 7}]}, {}, "system_name", ""),
        ({"mgmt-ip": [{"value": "10.0.0.1"}] * 2}, {}, "management_addresses", ("10.0.0.1",)),
        ({"capability": {"type": "Bridge", "enabled": True}}, {}, "capabilities", ("Bridge",)),
        ({"capability": ["x", {"enabled": True}]}, {}, "capabilities", ()),
        ({}, {"ttl": []}, "ttl_s", 120),
        ({}, {"ttl": [{"value": "0"}]}, "ttl_s", 0),
    ],
)
def test_a_value(chassis: dict[str, Any], port: dict[str, Any], field: str, value: object) -> None:
    entry = other0()
    entry["chassis"][0] |= chassis
    entry["port"][0] |= port
    ((found,), problems) = parse(document0(entry))
    assert getattr(found.neighbours[0], field) == value
    assert problems == ()


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"chassis": []}, "without a chassis id"),
        ({"port": None}, "without a port id"),
        ({"chassis": [{"id": [{"type": "local", "value": ""}]}]}, "without a chassis id"),
        ({"chassis": [{"id": [{"value": "x"}]}]}, "without a chassis id"),
        ({"chassis": "x"}, "without a chassis id"),
        ({"chassis": [{"id": [{"type": "mac", "value": "02:00"}]}]}, "not a valid MAC address"),
        ({"port": [{"id": [{"type": "local", "value": "9"}], "ttl": "soon"}]}, "TTL"),
        ({"port": [{"id": [{"type": "local", "value": "9"}], "ttl": "65536"}]}, "TTL"),
        ({"port": [{"id": [{"type": "local", "value": "9"}], "ttl": "9" * 5000}]}, "TTL"),
        ({"port": [{"id": [{"type": "local", "value": "9"}], "ttl": "-1"}]}, "TTL"),
    ],
)
def test_one_bad_neighbour_does_not_hide_the_others(changes: dict[str, Any], part: str) -> None:
    ports, problems = parse(document0(other0("eth5", **changes), leaf0()), "node-1")
    assert ports == (LldpPort("eth0", (LEAF,)),)
    (problem,) = problems
    assert problem.source == "node-1"
    assert problem.reason.startswith("eth5: ")
    assert part in problem.reason


def test_neighbours_are_bounded() -> None:
    entries = [other0(chassis=[{"id": [{"type": "local", "value": str(i)}]}]) for i in range(70)]
    ((port,), problems) = parse(document0(*entries))
    assert len(port.neighbours) == 64
    assert len(problems) == 6


@pytest.mark.parametrize(
    ("data", "line", "part"),
    [
        (b"", 1, "not JSON"),
        (b"\0" * 100, 1, "not JSON"),
        (b"\xff\xfe\xfd", 0, "not JSON"),
        (b'{"lldp": [\n{"interface": [', 2, "not JSON"),
        (b"LLDP neighbors:\nInterface:    eth0, via: LLDP\n", 1, "not JSON"),
        (b"[" * 100_000, 0, "not JSON"),
        (b'{"lldp": ' + b"1" * 5000 + b"}", 0, "not JSON"),
        (b"[]", 0, 'no "lldp"'),
        (b"null", 0, 'no "lldp"'),
        (b'{"interfaces": []}', 0, 'no "lldp"'),
        (b'{"lldp": 3}', 0, '"lldp" contains no objects'),
        (b'{"lldp": {"interface": ["eth0"]}}', 0, '"interface" contains no objects'),
        (b'{"lldp": {"interface": {"eth0": 3}}}', 0, "without a name"),
    ],
)
def test_what_is_refused(data: bytes, line: int, part: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse(data, "node-1")
    assert part in caught.value.reason
    assert "`lldpctl -f json0`" in caught.value.reason
    assert (caught.value.source, caught.value.line) == ("node-1", line)


def test_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lldpctl, "MAX_BYTES", 10)
    with pytest.raises(FormatError, match="at most 10"):
        parse(document0())

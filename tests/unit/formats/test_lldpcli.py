"""What `lldpcli -f json0 show interfaces` of lldpd 1.0.16 prints, and its counters' files."""

import json
from typing import Any

import pytest
from hyperscout_formats.facts import interface_counters
from hyperscout_formats.facts.facts import LldpNeighbour, PortCounters
from hyperscout_formats.lldp.lldpctl import parse_own
from hyperscout_formats.text.errors import FormatError


def interface(name: str, port: dict[str, Any] | None) -> dict[str, Any]:
    """As the real tool prints it, without `details`."""
    return {
        "name": name,
        "status": [{"value": "RX and TX"}],
        "chassis": [{"id": [{"type": "mac", "value": "7A:54:a4:b8:6a:08"}], "name": [{"value": "leaf-01"}]}],
        "port": [{"descr": [{"value": f"to {name}"}], **(port or {})}],
        "ttl": [{"ttl": "120"}],
    }


def document(*interfaces: dict[str, Any]) -> bytes:
    return json.dumps({"lldp": [{"interface": list(interfaces)}]}).encode()


def test_what_a_port_announces() -> None:
    own, problems = parse_own(document(interface("swp1", {"id": [{"type": "ifname", "value": "swp1"}]})))
    assert own == {
        "swp1": LldpNeighbour(
            "mac",
            "7a:54:a4:b8:6a:08",
            "ifname",
            "swp1",
            120,
            port_description="to swp1",
            system_name="leaf-01",
        )
    }
    assert problems == ()


def test_a_port_without_an_id_is_passed_over() -> None:
    own, problems = parse_own(
        document(interface("swp1", None), interface("swp2", {"id": [{"type": "local", "value": "2"}]}))
    )
    assert list(own) == ["swp2"]
    assert [str(one) for one in problems] == ["lldpcli: swp1: a neighbour without a port id"]


def test_no_ports() -> None:
    assert parse_own(b'{"lldp": [{}]}') == ({}, ())


def test_another_document() -> None:
    with pytest.raises(FormatError, match='no "lldp" key'):
        parse_own(b'{"local-chassis": []}')


@pytest.mark.parametrize(
    ("files", "found"),
    [
        pytest.param({}, PortCounters(), id="nothing is counted"),
        pytest.param({"rx_errors": b"3\n", "tx_dropped": b"4\n"}, PortCounters(3, tx_dropped=4), id="some"),
        pytest.param({"rx_crc_errors": b"-1\n"}, PortCounters(), id="negative"),
        pytest.param(
            {"rx_dropped": b"99999999999999999999\n"}, PortCounters(rx_dropped=2**64 - 1), id="huge"
        ),
        pytest.param({"tx_errors": b"many"}, PortCounters(), id="no number"),
        pytest.param({"rx_bytes": b"5\n"}, PortCounters(), id="traffic is not among them"),
    ],
)
def test_counters(files: dict[str, bytes], found: PortCounters) -> None:
    assert interface_counters.parse(files) == found

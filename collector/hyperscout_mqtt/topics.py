"""Topic names and the broker address. Their syntax is checked once, when the settings are read.

Source: MQTT Version 5.0 (OASIS), 4.7 Topic Names and Topic Filters.
"""

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from hyperscout_formats.text.reporters import is_reporter, is_switch

_SCHEMES = {"mqtt": 1883, "mqtts": 8883}
_HOST = r"(?:\[[0-9A-Fa-f:.%a-z]+\]|[A-Za-z0-9](?:[-A-Za-z0-9._]{0,252}[A-Za-z0-9])?)"
_BROKER = re.compile(rf"(mqtts?)://({_HOST})(?::(\d{{1,5}}))?/?")
_DEVICE = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]{0,127}")


@dataclass(frozen=True, slots=True)
class Broker:
    """The broker's address. `tls`: whether the connection is encrypted."""

    host: str
    port: int
    tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'mqtts' if self.tls else 'mqtt'}://{host}:{self.port}"


def broker_of(address: str) -> Broker:
    """Parse mqtt://host[:1883] or mqtts://host[:8883]. Raises ValueError."""
    match = _BROKER.fullmatch(address)
    if match is None:
        raise ValueError(
            f"{address!r}: expected mqtt://host[:port] or mqtts://host[:port]; set user and password with "
            "mqtt_user and mqtt_password_file; put an IPv6 address in brackets"
        )
    scheme, host, port = match.groups()
    number = int(port) if port else _SCHEMES[scheme]
    if not 0 < number <= 65535:
        raise ValueError(f"{address!r}: expected a port from 1 to 65535, found {number}")
    return Broker(host.strip("[]"), number, scheme == "mqtts")


def checked_prefix(prefix: str) -> str:
    """Return the prefix if a topic name may begin with it. Raises ValueError otherwise."""
    levels = prefix.split("/")
    if not all(levels):
        raise ValueError(
            f"{prefix!r}: expected levels separated by single slashes, without a slash at the start or end"
        )
    if prefix.startswith("$"):
        raise ValueError(f"{prefix!r}: topics that begin with $ are reserved for the broker")
    if "+" in prefix or "#" in prefix:
        raise ValueError(f"{prefix!r}: + and # are wildcards and are not allowed in a topic to publish to")
    if not prefix.isprintable():
        raise ValueError(f"{prefix!r}: not printable")
    return prefix


def device_of(text: str) -> tuple[str, str]:
    """Parse TOPIC=switch/NAME or TOPIC=NODE into (topic level, reporter). Raises ValueError."""
    level, equals, reporter = text.partition("=")
    if not equals or _DEVICE.fullmatch(level) is None:
        raise ValueError(
            f"{text!r}: expected TOPIC=switch/NAME or TOPIC=NODE, with a TOPIC of letters, digits, - . and _"
        )
    if not is_reporter(reporter) or not (is_switch(reporter) or "/" not in reporter) or len(reporter) > 253:
        raise ValueError(f"{text!r}: expected switch/NAME or the name of a node, found {reporter!r}")
    return level, reporter


@dataclass(frozen=True, slots=True)
class Topics:
    """All topics below a prefix. A name is always one level: "/" and other characters are quoted."""

    prefix: str

    @property
    def collector(self) -> str:
        return f"{self.prefix}/collector"

    @property
    def events(self) -> str:
        return f"{self.prefix}/events"

    @property
    def hypernodes(self) -> str:
        """Topic filter of all states."""
        return f"{self.prefix}/hypernodes/+"

    @property
    def findings(self) -> str:
        """Topic filter of all findings of devices."""
        return f"{self.prefix}/findings/+"

    def hypernode(self, name: str) -> str:
        return f"{self.prefix}/hypernodes/{quote(name, safe='')}"

    def refusals(self, device: str) -> str:
        return f"{self.prefix}/refusals/{quote(device, safe='')}"

    def hypernode_in(self, topic: str) -> str | None:
        """Return the HyperNode of a state topic; None for any other topic."""
        return self._last(topic, "hypernodes")

    def device_in(self, topic: str) -> str | None:
        """Return the device that writes to this topic; None if it is not a topic of findings."""
        return self._last(topic, "findings")

    def _last(self, topic: str, of: str) -> str | None:
        head = f"{self.prefix}/{of}/"
        level = topic.removeprefix(head)
        return unquote(level) if topic.startswith(head) and level and "/" not in level else None

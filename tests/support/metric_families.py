"""Every metric that one of the processes shows, as it is declared."""

import importlib
from collections.abc import Iterator

from hyperscout_formats.text.prometheus_text import Family

_MODULES = [
    *(f"hyperscout_collector.app.metrics.{name}" for name in ("page", "ingest", "topology", "outputs")),
    *(f"hyperscout_agent.{name}" for name in ("pages.metrics", "probes.latency", "probes.snmp")),
]


def _declared() -> Iterator[Family]:
    for module in _MODULES:
        for value in vars(importlib.import_module(module)).values():
            several = value.values() if isinstance(value, dict) else (value,)
            yield from (one for one in several if isinstance(one, Family))


FAMILIES = list(_declared())

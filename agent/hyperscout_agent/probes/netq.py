"""Reads an Ethernet fabric from NetQ's REST API. Off by default.

NetQ divides a fabric into premises and returns one of them after it was selected. The topology is the one
that NetQ's own pages show. It identifies devices by name; the collector matches the names to devices.
"""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from hyperscout_formats.facts.facts import SwitchTable
from hyperscout_formats.facts.wire import switch_table_to_proto
from hyperscout_formats.managers import netq
from hyperscout_formats.text.errors import FormatError

from hyperscout_agent.findings.probe import Observation, ProbeError, Scope, data
from hyperscout_agent.managers.client import ManagerConnection, ManagerError, bearer
from hyperscout_agent.runtime.threads import in_thread
from hyperscout_agent.settings.manager_settings import NetqSettings

_LOGIN = "/api/netq/auth/v1/login"
_SELECT = "/api/netq/auth/v1/select/opid"
_TOPOLOGY = "/api/netq/telemetry/v1/object/topologygraph/fetch-topology?timestamp=0"
_WHOLE = {"filters": [], "subgroupNestingDepth": 2}
_MAX_PREMISES = 64
_MAX_LOGIN_BYTES = 1024 * 1024


class NetqProbe:
    """Reads the switch tables of NetQ. `clock`: monotonic seconds."""

    name = "netq"
    scope: Scope = "fabric"
    max_findings = 4000

    def __init__(self, settings: NetqSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.interval_s = settings.interval_s
        self.timeout_s = settings.timeout_s + 5.0
        self._settings = settings
        self._clock = clock

    async def observe(self) -> Observation:
        connection = ManagerConnection(self._settings, self._clock)
        try:
            tables, trouble = await in_thread(lambda: self._look(connection), self.name)
        except (ManagerError, FormatError) as error:
            raise ProbeError(str(error)) from error
        finally:
            connection.abandon()
        sights = {name: data(switch_table_to_proto(table)) for name, table in tables.items() if table.ports}
        return Observation(sights, trouble=trouble)

    def _look(self, connection: ManagerConnection) -> tuple[Mapping[str, SwitchTable], str]:
        """Return all tables and a text of problems. Runs in a thread."""
        name, password = connection.credentials()
        said = _object(connection.post(_LOGIN, {}, {"username": name, "password": password}))
        token = bearer(said.get("access_token"))
        found: dict[str, SwitchTable] = {}
        troubles: list[str] = []
        for opid, premises in self._premises(said):
            chosen = _object(connection.get(f"{_SELECT}/{opid}", token))
            headers = bearer(chosen.get("access_token"))
            answer = b"".join(connection.post(_TOPOLOGY, headers, _WHOLE))
            graph = netq.parse(answer, f"NetQ at {connection.place}, premises {premises}")
            troubles += [str(problem) for problem in graph.problems]
            for switch, table in graph.tables.items():
                if switch in found:
                    troubles.append(f"{switch} is in several premises, in {premises} too: the first counts")
                found.setdefault(switch, table)
        if not found:
            raise ManagerError(f"NetQ at {connection.place}: no switch in any of its premises")
        more = f"; and {len(troubles) - 3} more" if len(troubles) > 3 else ""
        return found, "; ".join(troubles[:3]) + more

    def _premises(self, said: Mapping[str, Any]) -> list[tuple[int, str]]:
        """Return id and name of the configured premises, or of all. Raises ManagerError for unknown names."""
        listed = said.get("premises")
        known = [
            (opid, str(item.get("name", ""))[:100])
            for item in (listed if isinstance(listed, list) else [])
            if isinstance(item, Mapping) and type(opid := item.get("opid")) is int
        ]
        wanted = self._settings.premises
        if missing := set(wanted) - {name for _, name in known}:
            raise ManagerError(f"premises: there are none called {', '.join(sorted(missing))} for this user")
        return [(opid, name) for opid, name in known if not wanted or name in wanted][:_MAX_PREMISES]


def _object(pieces: Any) -> Mapping[str, Any]:
    """Parse a small answer that contains a token. Error messages contain no part of it."""
    answer = b""
    for piece in pieces:
        answer += piece
        if len(answer) > _MAX_LOGIN_BYTES:
            raise ManagerError("an answer to the login that is none: too long")
    try:
        said = json.loads(answer)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, Mapping):
        raise ManagerError("an answer to the login that is no JSON object")
    return said

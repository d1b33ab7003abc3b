"""Reads an Ethernet fabric from NetQ's REST API. Off by default.

NetQ divides a fabric into premises and returns one of them after it was selected. The topology is the one
that NetQ's own pages show. It identifies devices by name; the collector matches the names to devices.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from hyperscout_formats.facts.facts import SwitchTable
from hyperscout_formats.facts.wire import switch_table_to_proto
from hyperscout_formats.managers import netq

from hyperscout_agent.findings.probe import Observation, ProbeContext, ProbeParts, data
from hyperscout_agent.managers.client import ManagerConnection, ManagerError, ManagerProbe, bearer
from hyperscout_agent.settings.manager_settings import NetqSettings

_LOGIN = "/api/netq/auth/v1/login"
_SELECT = "/api/netq/auth/v1/select/opid"
_TOPOLOGY = "/api/netq/telemetry/v1/object/topologygraph/fetch-topology?timestamp=0"
_WHOLE = {"filters": [], "subgroupNestingDepth": 2}
_MAX_PREMISES = 64
_MAX_LOGIN_BYTES = 1024 * 1024


def build(context: ProbeContext) -> ProbeParts | None:
    return NetqProbe.parts(context.settings.netq)


class NetqProbe(ManagerProbe[NetqSettings]):
    """Reads the switch tables of NetQ."""

    name = "netq"
    max_findings = 4000
    max_answer_bytes = 64 * 1024 * 1024  # a cable takes 300 bytes

    def _read(self, connection: ManagerConnection) -> Observation:
        name, password = connection.credentials()
        answer = _object(connection.post(_LOGIN, {}, {"username": name, "password": password}))
        token = bearer(answer.get("access_token"))
        found: dict[str, SwitchTable] = {}
        troubles: list[str] = []
        for opid, premises in self._premises(answer):
            selected = _object(connection.get(f"{_SELECT}/{opid}", token))
            headers = bearer(selected.get("access_token"))
            document = b"".join(connection.post(_TOPOLOGY, headers, _WHOLE))
            graph = netq.parse(document, f"NetQ at {connection.place}, premises {premises}")
            troubles += [str(problem) for problem in graph.problems]
            for switch, table in graph.tables.items():
                if switch in found:
                    troubles.append(
                        f"{switch} is in several premises, the last is {premises}: the first is used"
                    )
                found.setdefault(switch, table)
        if not found:
            raise ManagerError(f"NetQ at {connection.place}: no premises have a switch")
        more = f"; and {len(troubles) - 3} more" if len(troubles) > 3 else ""
        samples = {name: data(switch_table_to_proto(table)) for name, table in found.items() if table.ports}
        return Observation(samples, trouble="; ".join(troubles[:3]) + more)

    def _premises(self, answer: Mapping[str, Any]) -> list[tuple[int, str]]:
        """Return id and name of the configured premises, or of all. Raises ManagerError for unknown names."""
        listed = answer.get("premises")
        known = [
            (opid, str(item.get("name", ""))[:100])
            for item in (listed if isinstance(listed, list) else [])
            if isinstance(item, Mapping) and type(opid := item.get("opid")) is int
        ]
        wanted = self._settings.premises
        if missing := set(wanted) - {name for _, name in known}:
            raise ManagerError(f"netq.premises: this user has no premises {', '.join(sorted(missing))}")
        return [(opid, name) for opid, name in known if not wanted or name in wanted][:_MAX_PREMISES]


def _object(pieces: Iterable[bytes]) -> Mapping[str, Any]:
    """Parse a small answer that contains a token. Error messages contain no part of it."""
    document = b""
    for piece in pieces:
        document += piece
        if len(document) > _MAX_LOGIN_BYTES:
            raise ManagerError(f"the answer to the login has more than {_MAX_LOGIN_BYTES} bytes")
    try:
        answer = json.loads(document)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, Mapping):
        raise ManagerError("the answer to the login is not a JSON object")
    return answer

"""The audit log of an API server: each request, and the body of each write. It continues over restarts.

    audit = AuditLog(folder)
    with ControlPlane(folder, Options(api_flags=audit.flags)) as kube:
        ...
        audit.writes_of("system:serviceaccount:default:collector")

An entry is written before the request is answered (mode "blocking"), so `kill -9` loses none.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from kube.api import Object

_WRITES = ["create", "update", "patch", "delete", "deletecollection"]
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [
        {
            "level": "Request",
            "verbs": _WRITES,
            "resources": [
                {"group": "topology.volcano.sh"},
                {"group": "", "resources": ["nodes", "nodes/status", "events"]},
                {"group": "coordination.k8s.io", "resources": ["leases"]},
            ],
        },
        {"level": "Metadata"},
    ],
}


class AuditLog:
    """`flags`: those of the API server."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        policy = folder / "audit-policy.json"
        policy.write_text(json.dumps(_POLICY))
        self._log = folder / "audit.log"
        self.flags: Sequence[str] = (
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self._log}",
            "--audit-log-mode=blocking",
        )

    def writes_of(self, user: str) -> list[Object]:
        """The entries (audit.k8s.io/v1 Event) of a user's writes, also of refused and interrupted ones.

        A write has several, by stage; the last one has the body and the answer.
        """
        entries = map(json.loads, self._log.read_text().splitlines())
        return [e for e in entries if e["verb"] in _WRITES and e["user"].get("username") == user]

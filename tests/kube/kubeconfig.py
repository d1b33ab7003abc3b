"""Kubeconfig files: how kubectl, helm, kwok and the collector find an API server and show their identity.

They are written as JSON, which is YAML too, so that nothing needs a YAML library.
"""

import json
from pathlib import Path

from kube.pki import Pair


def write(path: Path, server: str, ca: Path, user: Pair | str, namespace: str = "default") -> Path:
    """A kubeconfig with one cluster and one user: a client certificate, or a bearer token."""
    credentials: dict[str, str] = (
        {"client-certificate": str(user.cert), "client-key": str(user.key)}
        if isinstance(user, Pair)
        else {"token": user}
    )
    text = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": str(ca)}}],
        "users": [{"name": "test", "user": credentials}],
        "contexts": [
            {"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}
        ],
        "current-context": "test",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(text, indent=1))
    return path

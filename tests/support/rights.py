"""What a confined pod finds out about its rights."""

from typing import Any

CONFINED: dict[str, Any] = {
    "process": {
        **dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0000000000000000"),
        "NoNewPrivs": "1",
        "Seccomp": "2",
        "Groups": "10001",
        "Uid": "10001\t10001\t10001\t10001",
        "Gid": "10001\t10001\t10001\t10001",
    },
    "writes": {"/": "EROFS", "/etc": "EROFS", "/opt": "ENOENT", "/root": "EACCES"},
    "root": "ro,relatime",
    "attempts": {"raw socket": "EPERM", "chroot": "EPERM", "make a device": "EPERM"},
    "files": [
        "/etc/hyperscout/config/agent.yaml",
        "/etc/hyperscout/tls/ca.crt",
        "/run/secrets/hyperscout/token",
    ],
    "token": {"audiences": ["hyperscout"], "lasts_s": 3607, "node": "node1", "pod": "hyperscout-agent-x"},
    "asked": {
        "its own token": {"/api/v1/nodes": "401", "/api/v1/secrets": "401", "kubelet": "401"},
        "no token": {"/api/v1/nodes": "403", "/api/v1/secrets": "403", "kubelet": "ConnectionRefusedError"},
    },
}

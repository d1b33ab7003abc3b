"""The two little container images that the lab brings along, as OCI layouts in a tar: nothing is pulled.

Image layout: the OCI image format specification 1.1, "image-layout.md". The annotation with the image's whole
name is what containerd's import goes by.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

PAUSE, BUSYBOX = "lab.local/pause:1", "lab.local/busybox:1"
_TYPE = "application/vnd.oci.image."
_ETC = {
    "etc/passwd": b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
    "etc/group": b"root:x:0:\nnogroup:x:65534:\n",
}
_APPLETS = (
    "sh",
    "cat",
    "echo",
    "ls",
    "nc",
    "wget",
    "nslookup",
    "httpd",
    "sleep",
    "id",
    "ip",
    "ping",
    "touch",
)


def pause(out: Path, program: Path) -> Path:
    """What holds the namespaces of a pod."""
    return write(out, PAUSE, {"pause": program.read_bytes()}, {}, ["/pause"])


def busybox(out: Path, program: Path) -> Path:
    """A shell with tools, for pods of tests."""
    links = {f"bin/{name}": "busybox" for name in _APPLETS}
    return write(out, BUSYBOX, {"bin/busybox": program.read_bytes()}, links, ["/bin/sh"])


def write(
    out: Path, name: str, programs: Mapping[str, bytes], links: Mapping[str, str], entry: Sequence[str]
) -> Path:
    """An image of one layer. The same input gives the same bytes."""
    body = _layer(programs, links)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": list(entry), "Env": ["PATH=/bin"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [_digest(body)]},
        }
    ).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": f"{_TYPE}manifest.v1+json",
            "config": _described("config.v1+json", config),
            "layers": [_described("layer.v1.tar", body)],
        }
    ).encode()
    said = _described("manifest.v1+json", manifest) | {
        "platform": {"os": "linux", "architecture": "amd64"},
        "annotations": {
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": name.rsplit(":", 1)[-1],
        },
    }
    index = {"schemaVersion": 2, "mediaType": f"{_TYPE}index.v1+json", "manifests": [said]}
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    files |= {f"blobs/sha256/{_digest(blob)[7:]}": blob for blob in (config, manifest, body)}
    with tarfile.open(out, "w") as tar:
        for path, blob in files.items():
            _add(tar, path, blob, 0o644)
    return out


def _layer(programs: Mapping[str, bytes], links: Mapping[str, str]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for folder in ("bin", "etc", "proc", "sys", "dev", "run", "tmp", "var"):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(info)
        for path, blob in _ETC.items():
            _add(tar, path, blob, 0o644)
        for path, blob in programs.items():
            _add(tar, path, blob, 0o755)
        for path, target in links.items():
            info = tarfile.TarInfo(path)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return made.getvalue()


def _add(tar: tarfile.TarFile, path: str, blob: bytes, mode: int) -> None:
    info = tarfile.TarInfo(path)
    info.size, info.mode = len(blob), mode
    tar.addfile(info, io.BytesIO(blob))


def _described(kind: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": f"{_TYPE}{kind}", "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"

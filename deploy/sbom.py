"""Lists what an image contains: a CycloneDX 1.6 document, read from the image's archive alone.

    deploy/sbom.py ARCHIVE     print the document of an archive of `make images`

Debian packages come from var/lib/dpkg/status.d, Python packages from their *.dist-info, and the libraries in
the map's bundle from its lock file. The document has no time and no random number: the same archive gives the
same text.
"""

import json
import re
import sys
import tarfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
_MAP_LOCK = ROOT / "collector" / "map" / "package-lock.json"
_DEBIAN = "var/lib/dpkg/status.d/"
_PYTHON = re.compile(r"site-packages/[^/]+\.dist-info/METADATA$")
_MAP = "/serve/rest/static/"
_OS = "etc/os-release"
_SOURCE = re.compile(r"(\S+)(?: \((\S+)\))?")
_MAX_LICENSE = 80  # some packages write the whole text into this field

Component = dict[str, Any]


def path_of(archive: Path) -> Path:
    """Where `make images` writes the document of an archive."""
    return archive.with_suffix(".cdx.json")


def document(archive: Path) -> str:
    """The document of an image in the format of `docker save`."""
    with tarfile.open(archive) as tar:
        [manifest] = json.loads(_open(tar, "manifest.json").read())
        files, has_map = _files(tar, manifest["Layers"])
    release = dict(re.findall(r'^(\w+)="?(.*?)"?$', files.pop(_OS, ""), re.MULTILINE))
    found = [_of_file(name, text, release) for name, text in files.items()]
    found += _of_map() if has_map else []
    components = sorted(found, key=lambda component: str(component["purl"]))
    image, _, version = str(manifest["RepoTags"][0]).rpartition(":")
    digest = re.sub(r".*/|\.json$", "", str(manifest["Config"]))
    body = json.dumps([image, version, digest, components], sort_keys=True)
    contents = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, body)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": image,
                "name": image,
                "version": version,
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
        },
        "components": components,
    }
    return json.dumps(contents, indent=2) + "\n"


def _files(tar: tarfile.TarFile, layers: Sequence[str]) -> tuple[dict[str, str], bool]:
    """The texts that describe packages, by path; and whether the image has the map. Later layers win."""
    found: dict[str, str] = {}
    has_map = False
    for layer in layers:
        with tarfile.open(fileobj=_open(tar, layer)) as inner:
            for member in inner:
                name = member.name.removeprefix("./")
                has_map = has_map or _MAP in name
                if member.isfile() and (name.startswith(_DEBIAN) or name == _OS or _PYTHON.search(name)):
                    found[name] = _open(inner, member).read().decode()
    return found, has_map


def _open(tar: tarfile.TarFile, member: str | tarfile.TarInfo) -> IO[bytes]:
    body = tar.extractfile(member)
    if body is None:
        raise ValueError(f"{member}: expected a file")
    return body


def _of_file(name: str, text: str, release: Mapping[str, str]) -> Component:
    fields = Parser().parsestr(text, headersonly=True)
    return _of_debian(fields, release) if name.startswith(_DEBIAN) else _of_python(fields)


def _of_debian(fields: Message, release: Mapping[str, str]) -> Component:
    package, version = fields["Package"], fields["Version"]
    qualifiers = {
        "arch": fields["Architecture"],
        "distro": f"debian-{release['VERSION_ID']}" if "VERSION_ID" in release else "",
        "upstream": "@".join(filter(None, match.groups()))  # Debian's advisories name source packages
        if (match := _SOURCE.match(fields.get("Source", "")))
        else "",
    }
    tail = "&".join(f"{key}={quote(value, safe='')}" for key, value in qualifiers.items() if value)
    return _component("deb/debian", package, version, tail)


def _of_python(fields: Message) -> Component:
    name = re.sub(r"[-_.]+", "-", fields["Name"]).lower()
    found = _component("pypi", name, fields["Version"])
    said = fields.get("License", "")
    if expression := fields.get("License-Expression"):
        found["licenses"] = [{"expression": expression}]
    elif said and "\n" not in said and len(said) <= _MAX_LICENSE:
        found["licenses"] = [{"license": {"name": said}}]
    return found


def _of_map() -> Iterator[Component]:
    packages = json.loads(_MAP_LOCK.read_text())["packages"]
    for path, package in packages.items():
        if path and not package.get("dev"):
            name = path.rpartition("node_modules/")[2]
            found = _component("npm", name, package["version"])
            if "license" in package:
                found["licenses"] = [{"license": {"name": package["license"]}}]
            yield found


def _component(kind: str, name: str, version: str, qualifiers: str = "") -> Component:
    purl = f"pkg:{kind}/{quote(name, safe='/')}@{quote(version, safe='')}"
    purl += f"?{qualifiers}" if qualifiers else ""
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


if __name__ == "__main__":
    print(document(Path(sys.argv[1])), end="")

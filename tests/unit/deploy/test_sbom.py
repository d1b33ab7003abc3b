"""The list of what an image contains, from an archive in the format of `docker save`."""

import importlib
import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from support.real import ROOT

sys.path.append(str(ROOT / "deploy"))
sbom: Any = importlib.import_module("sbom")

SITE = "opt/hyperscout/lib/python3.11/site-packages"
OS = 'NAME="Debian GNU/Linux"\nVERSION_ID="12"\n'
LIBSSL = "Package: libssl3\nStatus: install ok installed\nArchitecture: amd64\nSource: openssl (3.0.1-1)\n"
LIBSSL += "Version: 3.0.17-1~deb12u2\nDescription: TLS\n with a second line\n"
YAML = "Name: PyYAML\nVersion: 6.0.2\nLicense: MIT\n\nLicense: no\n"
GRPC = "Name: grpcio\nVersion: 1.80\nLicense-Expression: Apache-2.0\n"
FILES = {
    "./etc/os-release": OS,
    "./var/lib/dpkg/status.d/libssl3": LIBSSL,
    "./var/lib/dpkg/status.d/libc6": "Package: libc6\nArchitecture: amd64\nVersion: 1:2.36+b1\n",
    f"./{SITE}/PyYAML-6.0.2.dist-info/METADATA": YAML,
    f"./{SITE}/grpcio-1.80.dist-info/METADATA": GRPC,
    f"./{SITE}/grpcio/METADATA": "Name: nothing\nVersion: 1\n",
}
OWN = {
    f"{SITE}/hyperscout-0.1.0.dist-info/METADATA": f"Name: hyperscout\nVersion: 0.1.0\nLicense: {'x' * 99}\n"
}
MAP = {f"{SITE}/hyperscout_collector/serve/rest/static/index.html": "<html>"}


def packed(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, body in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))
    return out.getvalue()


def archive(folder: Path, *layers: dict[str, str]) -> Path:
    bodies = {
        f"{number}.tar": packed({name: text.encode() for name, text in layer.items()})
        for number, layer in enumerate(layers)
    }
    manifest = [{"Config": f"{'c' * 64}.json", "RepoTags": ["docker.io/x/a:0.1.0"], "Layers": list(bodies)}]
    path = folder / "a.tar"
    path.write_bytes(packed({"manifest.json": json.dumps(manifest).encode(), **bodies}))
    return path


def components(path: Path) -> dict[str, Any]:
    return {found["purl"]: found for found in json.loads(sbom.document(path))["components"]}


@pytest.mark.parametrize("has_map", [False, True])
def test_all_packages_are_in_it_and_nothing_else(tmp_path: Path, has_map: bool) -> None:
    path = archive(tmp_path, FILES, OWN, *([MAP] if has_map else []))
    found = components(path)
    npm = {purl for purl in found if purl.startswith("pkg:npm/")}
    assert set(found) - npm == {
        "pkg:deb/debian/libc6@1%3A2.36%2Bb1?arch=amd64&distro=debian-12",
        "pkg:deb/debian/libssl3@3.0.17-1~deb12u2?arch=amd64&distro=debian-12&upstream=openssl%403.0.1-1",
        "pkg:pypi/grpcio@1.80",
        "pkg:pypi/hyperscout@0.1.0",
        "pkg:pypi/pyyaml@6.0.2",
    }
    assert ("pkg:npm/d3-zoom" in {purl.partition("@")[0] for purl in npm}) is has_map
    assert not [purl for purl in npm if "typescript" in purl], "it builds the map, and is not in it"
    assert found["pkg:pypi/pyyaml@6.0.2"]["licenses"] == [{"license": {"name": "MIT"}}]
    assert found["pkg:pypi/grpcio@1.80"]["licenses"] == [{"expression": "Apache-2.0"}]
    assert "licenses" not in found["pkg:pypi/hyperscout@0.1.0"]


def test_it_says_of_which_image_it_is(tmp_path: Path) -> None:
    found = json.loads(sbom.document(archive(tmp_path, FILES)))
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    image = found["metadata"]["component"]
    assert (image["name"], image["version"]) == ("docker.io/x/a", "0.1.0")
    assert image["hashes"] == [{"alg": "SHA-256", "content": "c" * 64}]


def test_the_same_archive_gives_the_same_text_and_another_another(tmp_path: Path) -> None:
    first = sbom.document(archive(tmp_path, FILES))
    assert sbom.document(archive(tmp_path, FILES)) == first
    serial = json.loads(sbom.document(archive(tmp_path, FILES, OWN)))["serialNumber"]
    assert serial != json.loads(first)["serialNumber"]

"""Writes the generated files of the deployment.

`make manifests` runs it.

- chart/values.schema.json: names and types under the settings of collector, agent and fabric;
- docker/*.requirements.txt: the packages of each image, from constraints.txt with their hashes;
- manifests/hyperscout.yaml: the chart with its default values, rendered by helm;
- grafana/*.json: the dashboards, from grafana/dashboards.yaml.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import generated
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pydantic import BaseModel

ROOT = generated.ROOT
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "chart"
SCHEMA = CHART / "values.schema.json"
MANIFEST = DEPLOY / "manifests" / "hyperscout.yaml"
NAMESPACE = "hyperscout"
KUBE_VERSION = "1.36.0"  # version of the API server for helm; the chart does not depend on it
_TIMEOUT_S = 60

# Settings that the chart writes itself.
_COLLECTOR_OWN = """
    listen insecure tls_cert tls_key tls_issuer_cert tls_issuer_key tls_names
    mtls_listen tls_client_ca authenticate token_audience
    agent_service_account fabric_service_account http_listen rest_listen rest_hosts data_dir kubernetes
    kubeconfig clusters deployment leader_election lease_namespace lease_name identity advertise node_labels
    taints node_conditions dra dra_taints kueue_topology slinky_config_map
    gates gates_namespace gates_replace_after_s gates_hot_swap
    gates_drain_after_s gates_defragment_every_s gates_defragment_most_moves gates_on_degradation
    gates_pod_labels gates_degraded_wait_s gates_moves_per_hour gates_hook_timeout_s blueprint
    mqtt_broker mqtt_topic_prefix mqtt_user mqtt_password_file mqtt_tls_ca mqtt_tls_cert mqtt_tls_key
    mqtt_devices store store_password_file estimator_listen estimator_cluster
"""
_AGENT_OWN = """
    node role collectors insecure tls_ca tls_server_name tls_cert tls_key token_file metrics
    lldp.enabled lldp.source lldp.socket lldp.spawn_listener lldp.lldpcli_command
    nvlink.enabled pod_resources
"""
# Settings that an agent of role `fabric` does not use, besides those that the chart writes.
_FABRIC_OWN = """
    node cluster role collectors insecure tls_ca tls_server_name tls_cert tls_key token_file metrics lldp
"""
COLLECTOR_OWN = frozenset(_COLLECTOR_OWN.split())
AGENT_OWN = frozenset(_AGENT_OWN.split())
FABRIC_OWN = frozenset(_FABRIC_OWN.split())

# The project's extras that each image contains; for `build` the build tools.
IMAGES = {"collector": ("collector", "postgresql"), "agent": ("agent", "lldp", "snmp"), "build": ()}
# What an image leaves out of the base install: the agent does not import NumPy.
_WITHOUT = {"agent": {"numpy"}}
PYTHON_VERSION = "3.11"  # the images' and the packages'
_PLATFORM = {"python_version": PYTHON_VERSION, "python_full_version": f"{PYTHON_VERSION}.2"}
_PLATFORM |= {"sys_platform": "linux"}
_PLATFORM |= {"platform_system": "Linux", "os_name": "posix", "implementation_name": "cpython"}
_PLATFORM |= {"platform_python_implementation": "CPython"}

HEAD = f"""\
# hyperscout in the namespace {NAMESPACE}: the chart (deploy/chart) with its default values.
# Written by `make manifests`; do not edit.
#
# A rendering holds no key. Before the collector starts, make the Secret {NAMESPACE}/hyperscout-tls with
# tls.crt, tls.key and ca.crt, for the DNS name hyperscout-collector.{NAMESPACE}.svc (and localhost and
# 127.0.0.1, for `kubectl port-forward`).
#
# - With cert-manager: a Certificate with secretName hyperscout-tls and these names. The chart writes it:
#   helm template --set tls.mode=certManager --set tls.certManager.issuerRef.name=...
# - By hand:
#   openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \\
#     -subj /CN=hyperscout -keyout tls.key -out tls.crt \\
#     -addext subjectAltName=DNS:hyperscout-collector.{NAMESPACE}.svc,DNS:localhost,IP:127.0.0.1
#   kubectl -n {NAMESPACE} create secret generic hyperscout-tls \\
#     --from-file=tls.crt --from-file=tls.key --from-file=ca.crt=tls.crt
#
# The images are hyperscout/collector and hyperscout/agent, without a registry. To put yours before them:
#   sed -i 's#image: hyperscout/#image: registry.example.com/infra/hyperscout/#' hyperscout.yaml
#
# Then: kubectl apply --server-side -f hyperscout.yaml
#
# Where another product owns the HyperNode definition, leave that document out, and let an admin run
# `hyperscout crd columns`.
---
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    # Agents work on the node's own network, which no other Pod Security level allows.
    pod-security.kubernetes.io/enforce: privileged
    pod-security.kubernetes.io/warn: privileged
"""


class RenderError(RuntimeError):
    """A file cannot be written; the message says what is missing."""


# --- the schema ---------------------------------------------------------------------------------------------


def schema() -> str:
    """values.schema.json with the current names and types of settings."""
    from hyperscout_agent.settings import settings as agent
    from hyperscout_agent.settings.fabric_settings import FabricGroup
    from hyperscout_agent.settings.probe_settings import NodeGroup
    from hyperscout_collector.app.settings import settings as collector

    found: dict[str, Any] = json.loads(SCHEMA.read_text())
    fabric_groups = set(_groups(agent.AgentSettings, FabricGroup))
    node_groups = set(_groups(agent.AgentSettings, NodeGroup))
    for part, model, retired, own in (
        ("collector", collector.CollectorSettings, collector.RETIRED, COLLECTOR_OWN),
        ("agent", agent.AgentSettings, agent.RETIRED, AGENT_OWN | fabric_groups),
        ("fabric", agent.AgentSettings, agent.RETIRED, FABRIC_OWN | node_groups),
    ):
        properties = dict(_names(model, own))
        for name in retired:
            group, _, last = name.rpartition(".")
            if group in properties:
                properties[group]["properties"][last] = {"deprecated": True}
            elif not group:
                properties[last] = {"deprecated": True}
        found["properties"][part]["properties"]["settings"]["properties"] = properties
    return json.dumps(found, indent=2) + "\n"


def _groups(model: type[BaseModel], kind: type[BaseModel]) -> Iterator[str]:
    """Names of the groups of settings of that type."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, kind):
            yield name


def _names(model: type[BaseModel], own: Iterable[str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names of settings with the types and limits of their values. What else is wrong with a value, agent and
    collector report when they start."""
    types = model.model_json_schema()["properties"]
    for name, field in model.model_fields.items():
        if prefix + name in own:
            continue
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            inner = dict(_names(field.annotation, own, f"{prefix}{name}."))
            yield name, {"type": "object", "additionalProperties": False, "properties": inner}
        else:
            yield name, _type(types[name])


def _type(schema: Any) -> Any:
    """The parts of a JSON schema that restrict a value, without the formats of Python."""
    if isinstance(schema, list):
        return [_type(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return {"type": "object"}  # a group of settings
    notes = ("title", "description", "default", "format")  # no setting is named so
    return {key: _type(value) for key, value in schema.items() if key not in notes}


# --- what images install ------------------------------------------------------------------------------------


def requirements(image: str) -> str:
    """The packages of an image with the hashes of constraints.txt."""
    locked = _locked()
    wanted: dict[str, str] = {}
    waiting = list(_asked(image))
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in _WITHOUT.get(image, ()) or not _applies(requirement.marker):
            continue
        if name not in locked:
            raise RenderError(f"{name} is not in constraints.txt: run `make constraints`")
        wanted[name] = locked[name]
        for extra in ("", *requirement.extras):
            waiting += _needs(name, extra)
    head = f"# What the {image} image installs, out of constraints.txt. Written by `make manifests`.\n"
    return head + "".join(wanted[name] for name in sorted(wanted))


def _asked(image: str) -> Iterator[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    lines = project["build-system"]["requires"] if image == "build" else project["project"]["dependencies"]
    return map(Requirement, [*lines, *(line for extra in IMAGES[image] for line in extras[extra])])


def _locked() -> Mapping[str, str]:
    """Lines of constraints.txt by package name."""
    text = (ROOT / "constraints.txt").read_text()
    blocks = re.finditer(r"^([a-z0-9-]+)==.*(?:\n    .*)*\n", text, re.MULTILINE)
    return {block[1]: block[0] for block in blocks}


def _needs(name: str, extra: str) -> Iterator[Requirement]:
    """Requirements of an installed package on the platform of the images."""
    for line in metadata.distribution(name).requires or ():
        requirement = Requirement(line)
        if _applies(requirement.marker, extra):
            requirement.marker = None
            yield requirement


def _applies(marker: Marker | None, extra: str = "") -> bool:
    return marker is None or marker.evaluate({**_PLATFORM, "extra": extra})


# --- the manifest -------------------------------------------------------------------------------------------


def manifest() -> str:
    """The chart with its default values. Raises RenderError."""
    sys.path.insert(0, str(ROOT / "tests"))
    from kube.assets import find  # type: ignore[import-not-found,unused-ignore]

    helm = find("helm")
    if helm is None:
        raise RenderError("helm not found: run `make kube-assets`")
    return HEAD + template(helm, "--set", "tls.mode=existingSecret")


def template(helm: Path, *options: str) -> str:
    """`helm template` of the chart. Raises RenderError with helm's message."""
    command = [str(helm), "template", "hyperscout", str(CHART), "--namespace", NAMESPACE]
    command += ["--kube-version", KUBE_VERSION, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise RenderError(done.stderr.strip())
    return done.stdout


sys.path.insert(0, str(DEPLOY / "grafana"))
import dashboards  # noqa: E402 - it is in the folder that it writes to

FILES: Mapping[Path, Callable[[], str]] = {
    SCHEMA: schema,
    **{DEPLOY / "grafana" / f"{name}.json": partial(dashboards.text, name) for name in dashboards.names()},
    **{DEPLOY / "docker" / f"{image}.requirements.txt": partial(requirements, image) for image in IMAGES},
    MANIFEST: manifest,
}


def main() -> int:
    """Run `make manifests`."""
    try:
        texts = {path: text() for path, text in FILES.items()}
    except RenderError as error:
        print(f"manifests: {error}", file=sys.stderr)
        return 1
    generated.run("manifests", texts)
    return 0


if __name__ == "__main__":
    sys.exit(main())

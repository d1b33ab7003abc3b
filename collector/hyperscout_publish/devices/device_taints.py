"""Taints single NICs whose links are degraded with DeviceTaintRules, as `taint_policy` decides for nodes.

A rule also works for a device of another driver, and it changes no slice: a pool whose generation changes
with each fault would be read anew by the scheduler. A rule is of hyperscout if it has its label; its name is
a digest of the device, so that a rule is only ever created or deleted. One with the label that differs from
what hyperscout writes is deleted, and the rule is created again if its device is still to be tainted.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence

from hyperscout_formats.kubelet.dra import DRIVER
from hyperscout_kubernetes.client import MANAGER, Kube, Object
from hyperscout_kubernetes.discovery import may, served_version
from hyperscout_kubernetes.errors import ConflictError, KubeError
from hyperscout_kubernetes.paths import api_path
from hyperscout_kubernetes.reflector import Reflector
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_topology.health import accused
from hyperscout_topology.topology import Topology

from hyperscout_publish.devices.nics import NodeNics
from hyperscout_publish.devices.places import NicEnds, Nics
from hyperscout_publish.devices.slices import GROUP, NO_SLICES, DeviceRef, Elsewhere
from hyperscout_publish.hypernodes.wanted import MANAGED_BY_LABEL, OWNER
from hyperscout_publish.nodes.node_writes import DryRun, Mode, for_each, listed
from hyperscout_publish.nodes.taint_policy import (
    TaintPolicy,
    TaintSettings,
    Trouble,
    lines,
    say_over,
    with_trouble,
)
from hyperscout_publish.nodes.taints import EFFECT, KEY
from hyperscout_publish.publisher.base import Alarm, Publisher, PublishError, Recheck

_log = logging.getLogger(__name__)

_RESOURCE = "devicetaintrules"
_VERSIONS = ("v1", "v1beta2", "v1alpha3")  # with the same fields, as far as they are written here
_UNPUBLISHED = "no ResourceSlice has a NIC that agents report, so none can be tainted: set dra: on"


class DeviceTaintsPublisher(Publisher):
    """Publishes DeviceTaintRules. `mode` "off" only removes those of earlier runs, once and if it may.

    `slices`: follows all ResourceSlices, in the form that `slices.kept` returns. `cluster`: whose nodes these
    are. `clock_ns`: Unix ns.
    """

    name = "device-taints"

    def __init__(
        self,
        kube: Kube,
        mode: Mode,
        settings: TaintSettings,
        say: Callable[[str], None],
        nics: NodeNics,
        slices: Reflector,
        *,
        cluster: str = "",
        clock_ns: Callable[[], int],
    ) -> None:
        super().__init__()
        self.recheck = Recheck(self.wake)
        self._over: str | None = None
        self._unpublished: str | None = None
        self._kube = kube
        self._mode = mode
        self._policy = TaintPolicy(settings)
        self._nics = nics
        self._slices = slices
        self._cluster = cluster
        self._clock_ns = clock_ns
        self._dry_run = DryRun("taints of devices", say)
        self._removed = False
        self.alarm = Alarm(self.wake)
        self._in_thread = BoundedExecutor("publish-device-taints")

    @property
    def notice(self) -> str | None:
        """Why NICs get no taint: the cap, or no slice has them; and why the slices may be out of date."""
        return "; ".join(filter(None, (self._over, self._unpublished, self._slices.problem))) or None

    async def publish(self, topology: Topology) -> None:
        """Create and delete the rules that are due. Raises PublishError."""
        if self._removed:
            return
        try:
            if self._mode == "off" and not await may(self._kube, "delete", GROUP, _RESOURCE):
                self._removed = True
                return
            version = await served_version(self._kube, GROUP, _RESOURCE, _VERSIONS)
            rules = [] if version is None else await self._rules(version)
        except KubeError as error:
            raise PublishError(str(error)) from error
        if self._mode == "off":
            await self._write(version or "", rules, [])
            self._removed = True
            return
        if version is None:
            raise PublishError(
                f"this cluster has no DeviceTaintRule of {GROUP}: enable it with the feature gate "
                "DRADeviceTaintRules and the API server's --runtime-config, or set dra_taints: off"
            )
        self.recheck.restart()
        await listed(self._slices, "the cluster's ResourceSlices", remedy=NO_SLICES)
        nics = self._nics.of_cluster(self._cluster)
        found, devices = await self._in_thread(_troubles, topology, nics, list(self._slices))
        is_unpublished = any(nics.values()) and not devices
        self._unpublished = _UNPUBLISHED if is_unpublished else None
        now_ns = self._clock_ns()
        tainted = {str(_device_of(rule)): rule for rule in rules if _has_its_name(rule)}
        decision = self._policy.decide(found, devices, tainted, now_ns)
        self.alarm.set(decision.wait_s(now_ns))
        self._notify(say_over(decision, self._policy.limit(len(devices)), len(devices), "NICs"))
        changed = [rule for rule in rules if not _is_as_written(rule)]
        again = [_device_of(rule) for rule in changed if _has_its_name(rule)]
        again = [device for device in again if str(device) not in decision.clear]
        said = [
            *lines(decision, found),
            *(f"DeviceTaintRule {_name(rule)}: delete (it was changed)" for rule in changed),
            *(f"{device}: taint (again)" for device in again),
        ]
        if self._mode == "dry-run":
            self._dry_run.show(said)
            return
        for line in said:
            _log.warning("%s", line)
        gone = [*changed, *(tainted[device] for device in decision.clear)]
        await self._write(version, gone, [*(devices[device] for device in decision.taint), *again])

    async def _rules(self, version: str) -> list[Object]:
        """The rules with hyperscout's label."""
        query = {"labelSelector": f"{MANAGED_BY_LABEL}={OWNER}"}
        found, _ = await self._kube.list(api_path(version, _RESOURCE), query)
        return [x for x in found if (x["metadata"].get("labels") or {}).get(MANAGED_BY_LABEL) == OWNER]

    async def _write(self, version: str, gone: Sequence[Object], new: Sequence[DeviceRef]) -> None:
        """Delete the rules `gone`, and create one of each device in `new`."""
        by_name = {_name(rule): rule["metadata"] for rule in gone}
        bodies = {_name(body): body for device in new for body in (taint_rule(version, device),)}

        async def delete(name: str) -> None:
            await self._kube.delete(api_path(version, _RESOURCE, name), by_name[name])

        async def create(name: str) -> None:
            try:
                path = api_path(version, _RESOURCE)
                await self._kube.write("POST", path, bodies[name], query={"fieldManager": MANAGER})
            except ConflictError as error:
                raise ConflictError(f"DeviceTaintRule {name} is of another owner: delete it") from error

        # Removed taints free capacity under the cap, so they come first.
        await for_each("DeviceTaintRules", list(by_name), delete)
        await for_each("DeviceTaintRules", list(bodies), create)

    def _notify(self, notice: str | None) -> None:
        if notice is not None and self._over is None:
            _log.warning("%s", notice)
        self._over = notice


def taint_rule(version: str, device: DeviceRef) -> Object:
    """Return the rule that taints a device. `version`: "group/version"."""
    return {
        "apiVersion": version,
        "kind": "DeviceTaintRule",
        "metadata": {
            "name": _name_of(device),
            "labels": {MANAGED_BY_LABEL: OWNER},
        },
        "spec": {"deviceSelector": device._asdict(), "taint": {"key": KEY, "effect": EFFECT}},
    }


def _name_of(device: DeviceRef) -> str:
    return f"hyperscout-{hashlib.sha256(str(device).encode()).hexdigest()[:16]}"


def _name(rule: Object) -> str:
    return str(rule["metadata"]["name"])


def _device_of(rule: Object) -> DeviceRef:
    selector = rule.get("spec", {}).get("deviceSelector") or {}
    return DeviceRef(*(selector.get(key) or "" for key in DeviceRef._fields))


def _has_its_name(rule: Object) -> bool:
    """Whether the name of a rule is that of the device that it selects."""
    return _name(rule) == _name_of(_device_of(rule))


def _is_as_written(rule: Object) -> bool:
    """Whether a rule is what `taint_rule` returns for its device; the API server adds `timeAdded`."""
    spec = rule.get("spec", {})
    taint = {key: value for key, value in (spec.get("taint") or {}).items() if key != "timeAdded"}
    wanted = taint_rule("", _device_of(rule))["spec"]
    return _has_its_name(rule) and {**spec, "taint": taint} == wanted


def _troubles(
    topology: Topology, nics: Nics, slices: list[Object]
) -> tuple[dict[str, Trouble], dict[str, DeviceRef]]:
    """Return the problems of each published NIC's links, and all published NICs, by the device's text."""
    elsewhere = Elsewhere(slices)
    own = {(x["node"], name) for x in slices if x["own"] for name in x["names"]}
    devices: dict[tuple[str, str], DeviceRef] = {}
    for node, mine in nics.items():
        for nic in mine:
            ref = elsewhere.get(node, nic)
            if ref is None and (node, nic.name) in own:
                ref = DeviceRef(DRIVER, node, nic.name)
            if ref is not None:
                devices[node, nic.pci_address] = ref
    ends = NicEnds(nics)
    found: dict[str, Trouble] = {}
    for node, x in accused(topology):
        for end in (x.subject, x.peer):
            hit = ends.at(node, end.device, end.port) if end is not None else None
            if hit is not None and (ref := devices.get((node, hit.pci_address))) is not None:
                found[str(ref)] = with_trouble(found.get(str(ref)), x)
    return found, {str(ref): ref for ref in devices.values()}

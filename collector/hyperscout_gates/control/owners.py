"""Reads the workloads that own gangs, with a brief cache because each new pod may cause a read."""

from collections.abc import Callable, Iterable

from hyperscout_kubernetes.client import Kube, Object
from hyperscout_kubernetes.errors import ForbiddenError, KubeError, NotFoundError
from hyperscout_placer.book.reservation import NotReadyError
from hyperscout_placer.cluster.forest import Forest, Tiers

from hyperscout_gates.state.events import OwnerRead
from hyperscout_gates.state.gang import GangError
from hyperscout_gates.workloads.membership import Owner, kind_of, membership, paths_of
from hyperscout_gates.workloads.node_resources import has_ended
from hyperscout_gates.workloads.objects import mapping, text
from hyperscout_gates.workloads.workloads import gang_of

_REMEMBERED_S = 3.0
_MAX_REMEMBERED = 2048
_ENDS = frozenset({"Complete", "Completed", "Failed", "Succeeded"})  # types of conditions
_LAST_PHASES = frozenset({"Completed", "Failed", "Aborted", "Terminated"})  # of Volcano's Job


class Owners:
    """Reads owners. `forest`: returns it, or raises NotReadyError. `timer`: monotonic seconds."""

    def __init__(self, kube: Kube, forest: Callable[[], Forest], timer: Callable[[], float]) -> None:
        self._kube = kube
        self._forest = forest
        self._timer = timer
        self._known: dict[str, tuple[float, Object]] = {}

    async def read(self, pods: Iterable[Object], uid: str) -> OwnerRead:
        """Return the gang of these pods (in stored form). Gated pods are preferred as the source.

        `uid`: uid of the owner, "" if unknown. An owner of the same name with another uid counts as over.
        """
        live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        waiting = [pod for pod in live if pod["gate"]["gated"]]
        owner: Owner | None = None
        try:
            tiers = Tiers(self._forest())
            some = waiting or live or list(pods)
            owner = membership(some[0]).owner if some else None
            # A cached object does not show whether the workload has ended or was scaled since.
            fresh = len(waiting) < len(live) or not waiting
            found = await self._get(owner, fresh=fresh) if owner is not None else None
            if found is not None and (
                _is_over(found) or uid not in ("", mapping(found.get("metadata")).get("uid"))
            ):
                return OwnerRead(None, over=True)
            if not waiting:
                # No pod needs a place. The caller only needs to know whether more pods will come.
                return OwnerRead(None, over=found is None)
            running = [pod for pod in live if not pod["gate"]["gated"] and not has_ended(pod)]
            return OwnerRead(gang_of(waiting, found, tiers, len(running)))
        except NotFoundError:
            if waiting and owner is not None and kind_of(owner).late:
                missing = f"{owner.kind} {owner.namespace}/{owner.name}: it is not there yet: create it"
                return OwnerRead(None, problem=missing)
            return OwnerRead(None, over=True)
        except GangError as error:
            return OwnerRead(None, problem=str(error))
        except ForbiddenError as error:
            return OwnerRead(None, problem=f"the collector may not read its workload: {error}")
        except (KubeError, NotReadyError) as error:
            return OwnerRead(None, problem=str(error), retry=True)

    async def _get(self, owner: Owner, *, fresh: bool) -> Object:
        """Return the owner in the first of its API versions that the server has. Raises KubeError."""
        *others, last = paths_of(owner)
        for path in others:
            try:
                return await self._get_path(path, fresh=fresh)
            except NotFoundError:
                continue
        return await self._get_path(last, fresh=fresh)

    async def _get_path(self, path: str, *, fresh: bool) -> Object:
        now_s = self._timer()
        known = None if fresh else self._known.get(path)
        if known is not None and now_s - known[0] < _REMEMBERED_S:
            return known[1]
        found = await self._kube.get(path)
        if len(self._known) >= _MAX_REMEMBERED:
            self._known = {p: x for p, x in self._known.items() if now_s - x[0] < _REMEMBERED_S}
        if len(self._known) < _MAX_REMEMBERED:
            self._known[path] = now_s, found
        return found


def about(pod: Object) -> Object:
    """Return a reference for an Event: the workload of a pod (in stored form), or the pod if it has none."""
    metadata = pod["metadata"]
    try:
        owner = membership(pod).owner
    except GangError:
        owner = None
    if owner is None:
        return about_pod(pod)
    none: Object = {}
    run = next((r for r in metadata.get("ownerReferences") or () if r.get("kind") == owner.kind), none)
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "namespace": owner.namespace,
        "name": owner.name,
        "uid": run.get("uid", ""),
    }


def about_pod(pod: Object) -> Object:
    metadata = pod["metadata"]
    named = {key: metadata[key] for key in ("namespace", "name", "uid")}
    return {"apiVersion": "v1", "kind": "Pod", **named}


def _is_over(owner: Object) -> bool:
    """Return whether a workload creates no more pods: it has ended, is being deleted or is suspended."""
    suspended = mapping(owner.get("spec")).get("suspend") is True
    if suspended or "deletionTimestamp" in mapping(owner.get("metadata")):
        return True
    status = mapping(owner.get("status"))
    if text(mapping(status.get("state")).get("phase")) in _LAST_PHASES:  # a string in a RayCluster
        return True
    conditions = status.get("conditions")
    listed = map(mapping, conditions if isinstance(conditions, list) else ())
    return any(text(c.get("type")) in _ENDS and c.get("status") == "True" for c in listed)

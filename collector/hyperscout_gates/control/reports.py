"""Reports to users: log lines, Kubernetes Events, and the output of a dry run."""

import logging
from collections.abc import Callable

from hyperscout_formats.text.counts import and_more
from hyperscout_kubernetes.client import Object
from hyperscout_kubernetes.event_recorder import EventRecorder

from hyperscout_gates.control.gang_record import GangRecord
from hyperscout_gates.control.owners import about, about_pod
from hyperscout_gates.state import events as e

_log = logging.getLogger(__name__)

_SHOWN = 20  # ranks of a dry run
_MAX_SAID = 10_000


class Reports:
    """A dry run calls `say` and posts no Events."""

    def __init__(self, recorder: EventRecorder, say: Callable[[str], None], *, dry_run: bool) -> None:
        self._recorder = recorder
        self._say = say
        self.dry_run = dry_run
        self._said: dict[str, str] = {}  # by key of a gang or uid of a pod

    def show(self, record: GangRecord, answer: e.Placed) -> None:
        """Print what a dry run would do. A gang's unchanged result is printed once."""
        key, nodes = record.machine.key, answer.placement.nodes
        shown = ", ".join(f"{rank} on {node}" for rank, node in enumerate(nodes[:_SHOWN]))
        text = f"would place {key}: {shown}{and_more(len(nodes) - _SHOWN)}\n"
        if self._said.get(key) != text:
            self._said[key] = text
            self._say(text)

    def announce(self, record: GangRecord, said: e.Say) -> None:
        """Log a message about a gang, and post it as an Event on its owner and its first pod."""
        _log.info("%s: %s", record.machine.key, said.message)
        if self.dry_run or not record.pods:
            return
        first = min(record.pods.values(), key=lambda pod: str(pod["metadata"]["name"]))
        owner, pod = about(first), about_pod(first)
        self._recorder.record(owner, said.severity, said.reason, said.message)
        if owner != pod and said.reason != "Placed":
            self._recorder.record(pod, said.severity, said.reason, said.message)

    def complain(self, kept: Object, problem: str) -> None:
        """Report a gated pod that belongs to no gang."""
        uid = kept["metadata"]["uid"]
        if self._said.get(uid) == problem:
            return
        if len(self._said) > _MAX_SAID:
            self._said.clear()
        self._said[uid] = problem
        _log.warning("%s", problem)
        if not self.dry_run:
            self._recorder.record(about_pod(kept), "Warning", "NoGang", problem)

    def forget(self, record: GangRecord) -> None:
        self._said.pop(record.machine.key, None)

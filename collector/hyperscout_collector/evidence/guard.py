"""Protects the collector from exceptions of the components that follow the evidence.

Components receive changes that are on disk, so an exception that ended the collector would end it again after
each restart. When a component raises, it receives the same changes again, one key at a time. It misses only
the changes of keys with which it raises again.
"""

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from hyperscout_formats.text.counts import first_few
from hyperscout_runtime.errors import described

from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.evidence.state import EvidenceState, KeyChange

_log = logging.getLogger(__name__)

Follow = Callable[[Sequence[KeyChange]], object]
_Part = tuple[str, Key | None]  # a reporter and one of its keys; None = the reporter itself
_MAX_NAMED = 8  # reporters in one problem
_MAX_LOGGED = 100  # texts that are remembered because they are in the log


class EvidenceGuard:
    """Calls components with evidence, and keeps their exceptions. Use it only on the event loop.

    `component`: what the problem names, such as "the list of agents". A component must accept the same
    changes twice. Its problem with a key ends when it takes a later change of this key, or when the reporter
    has no evidence left. Subscribe `follow` before the components.
    """

    def __init__(self, state: EvidenceState) -> None:
        self._state = state
        self._errors: dict[str, dict[_Part, str]] = {}  # component -> part -> exception
        self._logged: deque[tuple[str, str]] = deque(maxlen=_MAX_LOGGED)  # component and exception

    @property
    def problems(self) -> list[str]:
        return [
            f"{component} raised with the evidence of "
            f"{first_few(sorted({reporter for reporter, _ in errors}), _MAX_NAMED)}, and may be wrong about "
            "it until the same evidence is reported again, or the collector restarts:"
            f" {next(iter(errors.values()))}"
            for component, errors in self._errors.items()
            if errors
        ]

    def follow(self, changes: Sequence[KeyChange]) -> None:
        """Drop the problems with keys that are gone, and with reporters that have no evidence left."""
        if not any(self._errors.values()):
            return
        gone = {change.key for change in changes if not change.after}
        left = {key.node for key in gone if not self._state.count_of(key.node)}
        for component, errors in self._errors.items():
            self._errors[component] = {
                part: text for part, text in errors.items() if part[0] not in left and part[1] not in gone
            }

    def load(self, component: str, load: Callable[[Collection[str]], object]) -> None:
        """At the start: call `load` for each reporter that has evidence."""
        for reporter in list(self._state.nodes):
            with self._guarding(component, reporter, *self._state.keys_of(reporter)):
                load((reporter,))

    def guarded(self, component: str, follow: Follow) -> Follow:
        """Return a subscriber for commits that calls `follow` and never raises.

        A renewal of a reporter with a problem is passed as a new finding: the component may lack its content.
        """

        def guarded(changes: Sequence[KeyChange]) -> None:
            if errors := self._errors.get(component):
                lacking = {reporter for reporter, _ in errors}
                changes = [_as_new(change) if change.key.node in lacking else change for change in changes]
            try:
                follow(changes)
            except Exception as error:
                for change in changes:
                    with self._guarding(component, change.key.node, change.key):
                        follow((change,))
                self._log_once(component, "raised with a commit, but took its parts", error)
            else:
                self._taken(component, ((change.key.node, change.key) for change in changes))

        return guarded

    def guarded_reporter(self, component: str, work: Callable[[str], object]) -> Callable[[str], None]:
        """Return a subscriber for the names of reporters that calls `work` and never raises."""

        def guarded(reporter: str) -> None:
            with self._guarding(component, reporter, None):
                work(reporter)

        return guarded

    @contextlib.contextmanager
    def reading(self, component: str, key: Key) -> Iterator[None]:
        """Keep an exception of the block, in which `component` reads evidence of an earlier commit.

        If the evidence is gone by then, its exception is only logged.
        """
        with self._guarding(component, key.node, key):
            yield
        if key not in self._state.keys_of(key.node):
            self._taken(component, [(key.node, key)])

    @contextlib.contextmanager
    def _guarding(self, component: str, reporter: str, *keys: Key | None) -> Iterator[None]:
        parts = [(reporter, key) for key in keys]
        try:
            yield
        except Exception as error:
            self._log_once(component, f"raised with the evidence of {reporter}", error)
            self._errors.setdefault(component, {}).update(dict.fromkeys(parts, described(error)))
        else:
            self._taken(component, parts)

    def _taken(self, component: str, parts: Iterable[_Part]) -> None:
        if errors := self._errors.get(component):
            for part in parts:
                errors.pop(part, None)

    def _log_once(self, component: str, what: str, error: Exception) -> None:
        """Log an exception with its traceback. One defect may concern each commit and each reporter."""
        text = component, described(error)
        if text not in self._logged:
            self._logged.append(text)
            _log.error("%s %s", component, what, exc_info=error)


def _as_new(change: KeyChange) -> KeyChange:
    """Returns a renewal as a new finding: the component may lack what is renewed."""
    return KeyChange(change.key, (), change.after) if change.is_renewal else change

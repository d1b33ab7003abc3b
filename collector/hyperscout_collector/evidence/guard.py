"""Protects the collector from exceptions of the components that follow the evidence.

Components receive changes that are on disk, so an exception that ended the collector would end it again after
each restart. When a component raises, it receives the same changes again, one reporter at a time. It misses
only the changes of reporters with which it raises again.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Sequence

from hyperscout_runtime.errors import described

from hyperscout_collector.evidence.state import EvidenceState, KeyChange

_log = logging.getLogger(__name__)

Follow = Callable[[Sequence[KeyChange]], object]
_MAX_NAMED = 8  # reporters in one problem


class EvidenceGuard:
    """Calls components with evidence, and keeps their exceptions. Use it only on the event loop.

    `component`: what the problem names, such as "the list of agents". A component must accept the same
    changes twice. Its problem with a reporter ends when it takes later evidence of this reporter, or when the
    reporter has no evidence left. Subscribe `follow` before the components.
    """

    def __init__(self, state: EvidenceState) -> None:
        self._state = state
        self._errors: dict[str, dict[str, str]] = {}  # component -> reporter -> exception

    @property
    def problems(self) -> list[str]:
        return [
            f"{component} raised with the evidence of {_names(errors)}, and may be wrong about it until it is"
            f" reported again: {next(iter(errors.values()))}"
            for component, errors in self._errors.items()
            if errors
        ]

    def follow(self, changes: Sequence[KeyChange]) -> None:
        """Drop the problems with reporters that have no evidence left."""
        for errors in filter(None, self._errors.values()):
            for node in {x.key.node for x in changes if not x.after and not self._state.count_of(x.key.node)}:
                errors.pop(node, None)

    def load(self, component: str, load: Callable[[Collection[str]], object]) -> None:
        """At the start: call `load` for each reporter that has evidence."""
        for reporter in list(self._state.nodes):
            with self.guarding(component, reporter):
                load((reporter,))

    def guarded(self, component: str, follow: Follow) -> Follow:
        """Return a subscriber for commits that calls `follow` and never raises."""

        def guarded(changes: Sequence[KeyChange]) -> None:
            try:
                follow(changes)
            except Exception as error:
                by_reporter: dict[str, list[KeyChange]] = {}
                for change in changes:
                    by_reporter.setdefault(change.key.node, []).append(change)
                for reporter, own in by_reporter.items():
                    with self.guarding(component, reporter):
                        follow(own)
                if not self._errors.get(component):
                    _log.error("%s raised with a commit, but took its parts", component, exc_info=error)
            else:
                if errors := self._errors.get(component):
                    for change in changes:
                        errors.pop(change.key.node, None)

        return guarded

    def guarded_reporter(self, component: str, work: Callable[[str], object]) -> Callable[[str], None]:
        """Return a subscriber for the names of reporters that calls `work` and never raises."""

        def guarded(reporter: str) -> None:
            with self.guarding(component, reporter):
                work(reporter)

        return guarded

    @contextlib.contextmanager
    def guarding(self, component: str, reporter: str) -> Iterator[None]:
        """Keep an exception of the block, in which `component` takes evidence of `reporter`."""
        errors = self._errors.setdefault(component, {})
        try:
            yield
        except Exception as error:
            text = described(error)
            if text not in errors.values():  # one defect may concern thousands of reporters
                _log.error("%s raised with the evidence of %s", component, reporter, exc_info=error)
            errors[reporter] = text
        else:
            errors.pop(reporter, None)


def _names(reporters: Collection[str]) -> str:
    named = sorted(reporters)[:_MAX_NAMED]
    more = len(reporters) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")

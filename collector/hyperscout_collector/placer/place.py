"""`place`: the best placement there is, or a refusal that says what was short."""

from collections.abc import Mapping

from hyperscout_collector.placer.answer import Placement, Refusal
from hyperscout_collector.placer.capacity import Capacity, Mask
from hyperscout_collector.placer.request import Request

NO_MASKS: Mapping[str, Mask] = {}


def place(capacity: Capacity, request: Request, masks: Mapping[str, Mask] = NO_MASKS) -> Placement | Refusal:
    """Where the gang goes. `capacity.take(...)` makes it so. `masks`: by role, the nodes it may use.

    Raises RequestError for what cannot be meant.
    """
    raise NotImplementedError

"""From a fused graph to the hierarchy of domains, with everything that does not fit. Pure.

`infer` is the one way in: `hyperscout infer`, the collector and the tests all call it.
"""

from hyperscout_inference.hierarchy.infer import infer

__all__ = ["infer"]

"""Infer the hierarchy of domains and its anomalies from evidence. Pure: no clock, no I/O.

`infer` is the only entry point, for `hyperscout infer`, the collector and the tests.
"""

from hyperscout_inference.hierarchy.infer import infer

__all__ = ["infer"]

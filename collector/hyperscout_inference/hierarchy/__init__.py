"""Infer the hierarchy of domains and its anomalies from evidence. Pure: no clock, no I/O.

`infer` is the entry point of `hyperscout infer` and the tests, `infer_without_conditions` of the collector.
"""

from hyperscout_inference.hierarchy.infer import infer, infer_without_conditions

__all__ = ["infer", "infer_without_conditions"]

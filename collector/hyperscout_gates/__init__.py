"""Pods behind a scheduling gate: each gang is placed as a whole, pinned to nodes, and its gates are opened.

pods, their owners -> Gang -> Placements.place -> GangPlan (stored) -> one patch per pod -> bound -> released
"""

"""Gangs of pods in a Kubernetes cluster: held behind a scheduling gate, placed whole, pinned, let go.

pods, their owners -> Gang -> Placements.place -> Plan (stored) -> one patch a pod -> bound -> released
"""

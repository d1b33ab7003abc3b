"""Readers of external formats: pure functions that take bytes and return facts, one module for each format.

Every other package may import this one. It imports no other hyperscout package.

This file imports nothing, so that a process loads only the readers that it uses. Only the readers of
`ibnetdiscover` text need NumPy, and only `lldp.frame` needs scapy.
"""

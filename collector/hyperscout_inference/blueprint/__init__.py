"""Read a blueprint of the declared wiring, compare it with the present wiring, and write a new one.

Pure: bytes and a `Topology` in, anomalies or a new text out. The caller reads and writes files.
"""

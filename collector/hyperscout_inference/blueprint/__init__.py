"""How the machines should be wired, as people declare it: read, compared with what is wired, accepted.

Pure: bytes and a `Topology` in, anomalies or a new text out. Who reads the file and when is the shell's.
"""

"""Pure readers: bytes in, facts out, one file a format. Everyone may import them; they import nobody.

Nothing is imported here, so that a process pays only for the readers it uses (NumPy is only in
`ibnetdiscover`, scapy only in `lldp_frame`).
"""

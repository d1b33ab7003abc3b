"""Build one graph of devices and cables from current evidence. Pure: no I/O, no clock, no randomness."""

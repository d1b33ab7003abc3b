"""From current evidence to one graph of devices and cables. Pure: no I/O, no clock, no randomness."""

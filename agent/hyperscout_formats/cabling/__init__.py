"""Readers of cabling plans of other systems: bytes -> `Plan`. `reader_of` finds the reader by content."""

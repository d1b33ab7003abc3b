"""Texts that other programs read: pure functions from a Topology to lines.

Each writer yields chunks of text, so that a fabric of 65,536 hosts is never held twice, and yields the
same bytes for the same topology. What a format cannot hold is left out and named in a comment.
"""

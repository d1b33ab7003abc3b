"""Follows the evidence: sweep leases, seeds, link counters, and the removal of old evidence."""

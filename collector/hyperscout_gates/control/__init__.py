"""The gate controller: watches pods, requests placements, and writes patches."""

"""Facts that readers return, and their form in proto messages."""

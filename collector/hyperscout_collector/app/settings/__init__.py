"""Settings of the collector, and what they mean to its parts."""

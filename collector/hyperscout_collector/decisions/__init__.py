"""The collector's decisions as state machines: publication, leases for sweeps, and pairwise measurements.

Pure: events and the time (`now_ns`) go in; decisions and instructions come out. The calling code owns the
clock, the streams and the disk. `now_ns` is Unix nanoseconds; in `pair_tasks` it is a monotonic clock. A
clock that steps back makes waits longer, but never makes a time stamp earlier.
"""

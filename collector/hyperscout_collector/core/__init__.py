"""The collector's decisions as state machines: what may be published and when, and who sweeps which fabric.

Pure: events and the time (`now_ns`) go in, decisions and instructions come out. The shell around it
owns the clock, the streams and the disk. `now_ns` is Unix nanoseconds. A clock that steps back makes
waits longer, never a time stamp earlier.
"""

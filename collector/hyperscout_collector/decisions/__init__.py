"""The collector's decisions as state machines: what may be published and when, who sweeps which fabric, and
who measures whom.

Pure: events and the time (`now_ns`) go in, decisions and instructions come out. The shell around it
owns the clock, the streams and the disk. `now_ns` is Unix nanoseconds (in `pair_tasks`, those of a clock that
nobody sets). A clock that steps back makes waits longer, never a time stamp earlier.
"""

"""The collector's end of the agents' streams: what comes in, and in what order it may."""

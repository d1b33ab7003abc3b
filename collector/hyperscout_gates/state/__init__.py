"""State machine of a gang: takes events and the time, returns instructions. Performs no I/O."""

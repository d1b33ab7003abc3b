"""The state machine of a gang: events and the time go in, instructions come out. Pure."""
